"""Keeps ranks together at both ends of training: equal numbers at the start, no early leaving at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from phalanx.errors import IncompatibleError

_log = logging.getLogger(__name__)


def check_agreement(strategy: Any, rank: int, values: Mapping[str, int]) -> None:
    """Compare `values` (same names on all ranks) over all ranks: one small collective.

    Raises IncompatibleError on every rank, naming the value and what each rank holds.
    """
    world_size = strategy.num_replicas_in_sync
    if world_size == 1:
        return
    own = np.zeros((world_size, len(values)), np.int64)
    own[rank] = list(values.values())

    def gather() -> Any:
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(own))

    everyone = strategy.experimental_local_results(strategy.run(tf.function(gather, autograph=False)))[
        0
    ].numpy()
    message = disagreement(list(values), everyone.tolist())
    if message:
        raise IncompatibleError(
            message, "all ranks must run the same script and see the same checkpoint directory"
        )


def disagreement(names: list[str], rows: list[list[int]]) -> str:
    """Say which value differs and what each rank holds; "" when all rows (one a rank) are equal."""
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        if len(set(column)) > 1:
            told = ", ".join(f"rank {rank}: {value}" for rank, value in enumerate(column))
            return f"ranks differ in {name} ({told})"
    return ""


def meet(strategy: Any) -> None:
    """Wait until every rank is here: connections stand from then on, so that whoever leaves later is missed.

    Before that, TensorFlow takes a peer that has left for one that is late. The agent bounds the wait.
    """
    strategy.run(tf.function(_nothing, autograph=False))


def close(strategy: Any) -> None:
    """Let every rank finish the work before this before any rank leaves.

    A rank that leaves right after a collective can take away what a slower rank still fetches from it. When
    this last, empty one fails because a rank is gone, that rank had ended it, so all had done the rest.
    """
    if strategy.num_replicas_in_sync == 1:
        return
    try:
        strategy.run(tf.function(_nothing, autograph=False))
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        _log.debug("a rank left before this one: %s", error.message)


def _nothing() -> Any:
    """The smallest collective."""
    return tf.distribute.get_replica_context().all_reduce("SUM", tf.zeros(()))
