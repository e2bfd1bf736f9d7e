"""Reduces gradients over all ranks: once a step, in one packed call, before the optimizer sees them.

Owns the arithmetic of uneven shares. Knows no Keras.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from phalanx.train import private_tf


class GradientReducer:
    """Sums gradients over all replicas. Used while a step is traced, within the replica context.

    Keras divides each rank's loss by the number of ranks, so the sum of the gradients is the mean over the
    global batch when all ranks hold equally many examples. When they do not, `weighted` or `counted` says so.
    """

    def __init__(self) -> None:
        self._weight: float | None = None
        self._examples: Any = None
        self._options = private_tf.communication_options()

    @contextmanager
    def weighted(self, weight: float | None) -> Iterator[None]:
        """Within: this rank's gradients count `weight` times (None: once); known before the step."""
        self._weight = weight
        try:
            yield
        finally:
            self._weight = None

    @contextmanager
    def counted(self, examples: Any) -> Iterator[None]:
        """Within: this rank holds `examples` (a scalar tensor, 0 allowed), told to the others on the way."""
        self._examples = examples
        try:
            yield
        finally:
            self._examples = None

    def reduce(self, grads: list[Any]) -> list[Any]:
        """Return the gradients of the global batch, None where a gradient is None; the same on all ranks."""
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return grads
        there = [grad for grad in grads if grad is not None]
        if not there:
            return grads
        if self._examples is not None:
            reduced = self._reduce_counted(replica, there)
        else:
            if self._weight is not None:
                there = [_scaled(grad, self._weight) for grad in there]
            reduced = replica.all_reduce("SUM", there, self._options)
        results = iter(reduced)
        return [None if grad is None else next(results) for grad in grads]

    def _reduce_counted(self, replica: Any, grads: list[Any]) -> list[Any]:
        count = tf.cast(self._examples, tf.float32)
        # A rank without examples may hold NaN, which must not reach the others.
        *summed, total = replica.all_reduce(
            "SUM", [*(_scaled(g, count) for g in grads), count], self._options
        )
        factor = tf.math.divide_no_nan(float(replica.num_replicas_in_sync), total)
        return [_scaled(grad, factor) for grad in summed]


def _scaled(grad: Any, factor: Any) -> Any:
    """`grad * factor`, 0 where the factor is 0; sparse gradients stay sparse."""
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_scaled(grad.values, factor), grad.indices, grad.dense_shape)
    return tf.math.multiply_no_nan(grad, tf.cast(factor, grad.dtype))
