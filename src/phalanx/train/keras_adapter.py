"""Makes compiled Keras 3 models train under MultiWorkerMirroredStrategy, on the instance, class untouched.

Owns the hooks on model and optimizer and the functions that run one step on all ranks. What cannot work is
refused in `compatibility`; private names are in `private_keras`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from phalanx.train import compatibility, private_keras, seeds
from phalanx.train.gradients import GradientReducer
from phalanx.train.reporting import Reporter


class Adapter:
    """What Phalanx adds to one model. Holds no reference to it: the model holds the adapter."""

    def __init__(self, strategy: Any, world_size: int, rank: int, xla: bool, reporter: Reporter) -> None:
        self.strategy = strategy
        self.reducer = GradientReducer()
        self._world_size = world_size
        self._rank = rank
        self._xla = xla
        self._reporter = reporter
        self._own_seeds: set[int] = set()
        self._noted = 0  # steps of the prepared model that the board knows, over all rounds
        self._compiled = False

    def hook_optimizers(self, model: Any) -> None:
        """Check the compiled model and make its optimizers reduce first; again after each `compile`."""
        compatibility.check_model(model, strategy=self.strategy, world_size=self._world_size, xla=self._xla)
        if self._world_size > 1:
            for optimizer in private_keras.optimizers_of(model):
                private_keras.reduce_before_apply(optimizer, self.reducer.reduce)

    def build(self, model: Any, batch: Any) -> None:
        """Create all variables from the shapes of `batch` (tensors or specs); give this rank its seeds."""
        self.hook_optimizers(model)
        with self.strategy.scope():
            private_keras.build(model, batch)
        self.take_own_seeds(model)

    def take_own_seeds(self, model: Any, *, restored: bool = False) -> None:
        """Give this rank its own random masks, once; again after base states were restored."""
        if restored:
            self._own_seeds.clear()
        states = [state for state in seeds.seed_states(model) if id(state) not in self._own_seeds]
        seeds.make_own(states, self._rank)
        self._own_seeds.update(map(id, states))

    def train_step(self, model: Any) -> Callable[[Any], Any]:
        """The function that one replica runs on its part of a batch."""
        step: Callable[[Any], Any] = model.train_step
        return private_keras.compiled_train_step(model) if self._xla else step

    def adapt_trainer(self, model: Any) -> None:
        """Make stock `fit`, `evaluate` and `train_on_batch` of this instance work on all ranks."""

        def build_from_iterator(iterator: Any, data_batch: Any) -> None:
            if iterator is not None:
                # Keras' epoch iterator yields (first step, last step, iterator over batches).
                data_batch = next(next(iter(iterator))[2])
            self.build(model, self._local(data_batch))

        private_keras.replace_trainer_methods(
            model,
            build_from_iterator=build_from_iterator,
            make_function=lambda step: self._make_function(model, step),
        )

    def _make_function(self, model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """What Keras calls with an iterator, once an execution; returns this rank's logs of the last step."""
        training = step == model.train_step
        if training:
            self.hook_optimizers(model)
            step = self.train_step(model)

        def replica_step(batch: Any) -> Any:
            with self.reducer.counted(examples_in(batch)):
                return step(batch)

        def on_batch(batch: Any) -> Any:
            return self._local(self.strategy.run(replica_step, args=(batch,)))

        run_step = (
            on_batch if model.run_eagerly else tf.function(on_batch, reduce_retracing=True, autograph=False)
        )

        def execute(iterator: Any) -> Any:
            logs = None
            for _ in range(model.steps_per_execution):
                try:
                    batch = next(iterator)
                except (StopIteration, tf.errors.OutOfRangeError):
                    if logs is None:
                        raise
                    break
                logs = run_step(without_optionals(batch))
            return logs

        return self._noting(execute, model) if training else execute

    def _noting(self, execute: Callable[[Any], Any], model: Any) -> Callable[[Any], Any]:
        """`execute`, with its steps noted on the board, counted on from what the optimizer had done before.

        A script that restores its own checkpoints then shows progress over rounds, not within one only.
        """
        board = self._reporter.board
        if board is None:
            return execute

        def noted(iterator: Any) -> Any:
            count = model.steps_per_execution
            if not self._noted:
                self._noted = int(model.optimizer.iterations.numpy())
            self._reporter.section("step" if self._compiled else "compile")
            board.steps_begun(self._noted + count)
            logs = execute(iterator)
            self._compiled = True
            self._noted += count
            board.steps_done(self._noted, 0)
            return logs

        return noted

    def _local(self, values: Any) -> Any:
        """This rank's own part of distributed values; there is one replica a rank."""
        return tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], values)


_ADAPTERS: weakref.WeakKeyDictionary[Any, Adapter] = weakref.WeakKeyDictionary()


def attach(
    model: Any, *, strategy: Any, world_size: int, rank: int, xla: bool, reporter: Reporter
) -> Adapter:
    """Check `model`, hook its optimizers, and return its adapter; a second call returns the same one.

    Raises IncompatibleError for what cannot work, saying what to do instead.
    """
    compatibility.check_type(model)
    adapter = _ADAPTERS.get(model)
    if adapter is None:
        adapter = Adapter(strategy, world_size, rank, xla, reporter)
    adapter.hook_optimizers(model)
    if model not in _ADAPTERS:
        if world_size > 1:
            adapter.adapt_trainer(model)
        _ADAPTERS[model] = adapter
    return adapter


def examples_in(batch: Any) -> Any:
    """How many examples a batch holds: the first axis of its first tensor (scalar int32 tensor)."""
    return tf.shape(tf.nest.flatten(batch)[0])[0]


def without_optionals(batch: Any) -> Any:
    """The batch with None where Keras put an empty tf.experimental.Optional."""
    return tf.nest.map_structure(
        lambda value: None if isinstance(value, tf.experimental.Optional) else value, batch
    )
