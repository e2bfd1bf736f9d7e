"""Runs training and test steps of one model on all ranks: the functions that TensorFlow compiles.

Owns tracing and the loop of several steps in one call. Decides nothing about when to run them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from phalanx.train.keras_adapter import Adapter, examples_in
from phalanx.train.sources import Source, known_weight

if TYPE_CHECKING:
    from phalanx.train.context import Run


class Execution:
    """Training steps. Call it with an iterator over this rank's batches and a number of steps."""

    def __init__(self, run: Run, adapter: Adapter, model: Any, source: Source) -> None:
        """Trace nothing yet: the first call does."""
        self._report = run.reporter
        self._strategy = run.strategy
        self._step = _weighted(adapter, adapter.train_step(model), source, run)
        self._one = compiled(self._on_batch, model)
        self._many = compiled(self._on_iterator, model)
        self._traced: set[bool] = set()

    def __call__(self, batches: Any, count: int) -> tuple[Any, int]:
        """Run `count` steps; returns this rank's logs of the last and how many examples it held.

        Raises StopIteration or OutOfRangeError at the end of the data.
        """
        several = count > 1
        section = "step" if several in self._traced else "compile"
        if several:
            self._report.section(section)
            logs, examples = self._many(batches, tf.constant(count))
        else:
            # Asked for outside the step, so that the board tells a slow input from a slow step.
            self._report.section("input")
            batch = next(batches)
            self._report.section(section)
            logs, examples = self._one(batch)
        self._traced.add(several)
        return logs, int(examples)

    def _on_batch(self, batch: Any) -> Any:
        logs = self._strategy.run(self._step, args=(batch,))
        own = tf.nest.map_structure(lambda value: self._strategy.experimental_local_results(value)[0], logs)
        return own, examples_in(batch)

    def _on_iterator(self, batches: Any, count: Any) -> Any:
        def body(done: Any) -> Any:
            self._strategy.run(self._step, args=(next(batches),))
            return done + 1

        tf.while_loop(lambda done: done < count - 1, body, (tf.constant(0),))
        return self._on_batch(next(batches))


def evaluation_step(run: Run, model: Any) -> Callable[[Any], Any]:
    """Adds a batch to this rank's metrics: no collective, so ranks may hold different numbers of batches."""
    return compiled(lambda batch: run.strategy.run(model.test_step, args=(batch,)), model)


def compiled(function: Callable[..., Any], model: Any) -> Callable[..., Any]:
    """`function` as a graph, unless the model is to run eagerly."""
    if model.run_eagerly:
        return function
    graph: Callable[..., Any] = tf.function(function, reduce_retracing=True, autograph=False)
    return graph


def loss_of(logs: Any) -> float:
    """The loss in a step's logs, NaN without one. Reading it waits until the device has done the step."""
    loss = logs.get("loss") if isinstance(logs, dict) else None
    if loss is None:
        loss = next(iter(tf.nest.flatten(logs)), math.nan)
    return float(np.mean(loss))


def _weighted(adapter: Adapter, step: Callable[[Any], Any], source: Source, run: Run) -> Callable[[Any], Any]:
    """`step`, telling the reducer how much this rank's examples count."""
    known, weight = known_weight(source, run)

    def weighted_step(batch: Any) -> Any:
        with adapter.reducer.weighted(weight) if known else adapter.reducer.counted(examples_in(batch)):
            return step(batch)

    return weighted_step
