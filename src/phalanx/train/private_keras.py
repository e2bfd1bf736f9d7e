"""Every private name of Keras that Phalanx uses, and a self-test of them. Verified with Keras 3.12 to 3.15.

Why they are needed: under MultiWorkerMirroredStrategy stock Keras 3 fails in two methods of its trainer, and
its optimizers reduce gradients after they clip them (keras issues 20585 and 19308).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from phalanx.errors import IncompatibleError

_TRAINER_NAMES = (
    "_symbolic_build",
    "_maybe_symbolic_build",
    "_make_function",
    "_flatten_layers",
    "_compute_loss",
)


def self_test() -> None:
    """Raise IncompatibleError when this Keras lacks a private name used here or runs another backend."""
    if keras.backend.backend() != "tensorflow":
        raise IncompatibleError(
            f"Keras runs on the {keras.backend.backend()!r} backend", "set KERAS_BACKEND=tensorflow"
        )
    missing = [f"Model.{name}" for name in _TRAINER_NAMES if not hasattr(keras.Model, name)]
    if not hasattr(keras.optimizers.Optimizer, "_all_reduce_sum_gradients"):
        missing.append("Optimizer._all_reduce_sum_gradients")
    if missing:
        raise IncompatibleError(
            f"Keras {keras.__version__} lacks {', '.join(missing)}, which Phalanx adapts",
            "install keras 3.15, the version that this Phalanx was verified with",
        )


def layers_of(model: Any) -> list[Any]:
    """All layers of `model` at any depth, itself included."""
    return list(model._flatten_layers())


def build(model: Any, batch: Any) -> None:
    """Create all variables of model, metrics, loss and optimizer from the shapes of `batch`.

    `batch` is what a data set yields, as tensors or as tensor specs. Call it within the strategy's scope.
    """
    model._symbolic_build(data_batch=batch)


def has_stock_train_step(model: Any) -> bool:
    """Whether the model trains by Keras' own `train_step`."""
    return bool(type(model).train_step is keras.Model.train_step)


def optimizers_of(model: Any) -> Iterable[Any]:
    """The compiled optimizer, and others that a subclass keeps as attributes (GANs do)."""
    found = [model.optimizer, *vars(model).values()]
    unique = {id(item): item for item in found if isinstance(item, keras.optimizers.Optimizer)}
    return list(unique.values())


def reduce_before_apply(optimizer: Any, reduce: Callable[[list[Any]], list[Any]]) -> None:
    """Make this instance's `apply` reduce gradients over all ranks first, and never again inside.

    Clipping and the overflow test of loss scaling then see the same reduced gradients on every rank.
    """
    if "apply" in vars(optimizer):
        return
    stock_apply = optimizer.apply

    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        return stock_apply(reduce(list(grads)), trainable_variables)

    optimizer.apply = apply
    innermost = optimizer
    while isinstance(innermost, keras.optimizers.LossScaleOptimizer):
        innermost = innermost.inner_optimizer
    innermost._all_reduce_sum_gradients = list


def replace_trainer_methods(
    model: Any,
    *,
    build_from_iterator: Callable[[Any, Any], None],
    make_function: Callable[[Any], Callable[[Any], Any]],
) -> None:
    """Override, on this instance only, the two trainer methods that fail under a multi-worker strategy.

    `build_from_iterator(iterator, data_batch)` creates variables; `make_function(step)` gives what Keras
    calls with an iterator, once an execution. Class and serialisation of the model stay as they are.
    """
    model._maybe_symbolic_build = lambda iterator=None, data_batch=None: build_from_iterator(
        iterator, data_batch
    )
    model._make_function = make_function
    model.train_function = model.test_function = None


def compiled_train_step(model: Any) -> Callable[[Any], Any]:
    """Keras' own train step with the forward and backward pass compiled by XLA.

    Reducing and applying the gradients and the metrics stay outside: XLA has no collectives on CPU.
    Takes and returns what `model.train_step` does.
    """

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def forward_backward(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, list[Any]]:
        with tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
            scaled_loss = model.optimizer.scale_loss(loss)
        return loss, y_pred, tape.gradient(scaled_loss, model.trainable_weights)

    def train_step(data: Any) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        loss, y_pred, gradients = forward_backward(x, y, sample_weight)
        # The loss was divided by the number of replicas for the sum of the gradients.
        own_loss = loss * tf.cast(tf.distribute.get_strategy().num_replicas_in_sync, loss.dtype)
        model._loss_tracker.update_state(own_loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
        model.optimizer.apply(gradients, model.trainable_weights)
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    return train_step
