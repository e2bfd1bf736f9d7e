"""What cannot work, told before training starts, with what to do instead. Changes nothing."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from phalanx.errors import IncompatibleError
from phalanx.train import private_keras


def check_type(model: Any) -> None:
    """Raise IncompatibleError for what is no Keras model."""
    if not isinstance(model, keras.Model):
        raise IncompatibleError(
            f"a Keras model is needed, not {type(model).__module__}.{type(model).__name__}",
            "build it with Keras 3; a loop of your own needs only run.strategy",
        )


def check_model(model: Any, *, strategy: Any, world_size: int, xla: bool) -> None:
    """Raise IncompatibleError for a model that cannot be trained by `world_size` ranks, or not with `xla`."""
    if getattr(model, "optimizer", None) is None:
        raise IncompatibleError(
            f"model {model.name!r} is not compiled", "call model.compile(optimizer=..., loss=...) first"
        )
    if world_size > 1:
        _check_distributed(model)
        _check_scope(model, strategy)
    if xla:
        _check_xla(model, world_size)


def _check_scope(model: Any, strategy: Any) -> None:
    outside = []
    if model.distribute_strategy is not strategy:
        outside.append(f"model {model.name!r}")
    outside += [
        f"optimizer {optimizer.name!r}"
        for optimizer in private_keras.optimizers_of(model)
        if not isinstance(optimizer.iterations.value, tf.distribute.DistributedValues)
    ]
    if outside:
        raise IncompatibleError(
            f"{' and '.join(outside)} was made outside run.scope(), so ranks would train different weights",
            "make model and optimizer, and compile, within `with run.scope():`",
        )


def _check_distributed(model: Any) -> None:
    for optimizer in private_keras.optimizers_of(model):
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        if inner.gradient_accumulation_steps:
            raise IncompatibleError(
                f"gradient_accumulation_steps={inner.gradient_accumulation_steps} cannot work on several "
                "workers: TensorFlow allows no communication inside the branch that it adds",
                "leave it out and raise train.global_batch, or run on one worker",
            )
    if model.jit_compile is True:
        raise IncompatibleError(
            "jit_compile=True compiles the communication between workers too, which XLA cannot do",
            "leave jit_compile out and set train.xla: true; it compiles the forward and backward pass",
        )
    plain = [layer.name for layer in _batch_norms(model) if layer.trainable and not layer.synchronized]
    if plain:
        raise IncompatibleError(
            f"BatchNormalization layers would keep different statistics on each worker: {_some(plain)}",
            "make them with synchronized=True (or set layer.synchronized = True on a ready-made model)",
        )


def _check_xla(model: Any, world_size: int) -> None:
    if not private_keras.has_stock_train_step(model):
        raise IncompatibleError(
            f"train.xla compiles Keras' own train_step, and {type(model).__name__} has its own",
            "set train.xla: false and put @tf.function(jit_compile=True) on your forward and backward pass",
        )
    synchronized = [layer.name for layer in _batch_norms(model) if layer.trainable and layer.synchronized]
    if world_size > 1 and synchronized:
        raise IncompatibleError(
            "train.xla cannot compile the communication inside synchronized BatchNormalization: "
            f"{_some(synchronized)}",
            "set train.xla: false, or use another normalization (GroupNormalization, LayerNormalization)",
        )


def _batch_norms(model: Any) -> list[Any]:
    return [
        layer
        for layer in private_keras.layers_of(model)
        if isinstance(layer, keras.layers.BatchNormalization)
    ]


def _some(names: list[str]) -> str:
    told = ", ".join(names[:3])
    return told if len(names) <= 3 else f"{told} and {len(names) - 3} more"
