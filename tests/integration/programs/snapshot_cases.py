"""Trains small models of many kinds, saving at step 3 of 6: snapshot_cases.py DIR first|resumed.

`first` goes through without a stop. `resumed` is a new process that builds the models in another order, so
that Keras counts their layers differently; it restores step 3 and trains the same last steps. Each prints one
line of JSON.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from phalanx.errors import CheckpointError
from phalanx.train import snapshot
from phalanx.train.checkpointing import Checkpoints

layers = keras.layers
LAST, SAVED = 6, 3


def functional(width: int = 16) -> Any:
    inputs = keras.Input((8,))
    x = layers.Dense(width, activation="relu")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Dropout(0.3)(x)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def mixed_float16() -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.Dropout(0.2), layers.Dense(1)])
    keras.mixed_precision.set_global_policy("float32")
    # A scale that overflows half precision at first, so that it is halved before the checkpoint and after.
    inner = keras.optimizers.Adam(0.01)
    model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**21), "mse")
    return model


def bfloat16() -> Any:
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(4, dtype="bfloat16"), layers.Dense(1, dtype="bfloat16")]
    )
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    return model


class Scale(keras.Layer):  # type: ignore[misc]  # Keras ships no types
    """Three weights that Keras gives two names."""

    def build(self, shape: Any) -> None:
        self.a = self.add_weight(shape=(1,), initializer="ones", name="w")
        self.b = self.add_weight(shape=(1,), initializer="zeros", name="w")
        self.c = self.add_weight(shape=(1,), initializer="ones")

    def call(self, x: Any) -> Any:
        return x * self.a * self.c + self.b


class Subclassed(keras.Model):  # type: ignore[misc]  # Keras ships no types
    """A shared layer, a list, a dictionary, a nested model, variables of its own, a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = layers.Dense(8, activation="tanh")
        self.list = [layers.Dense(8), Scale(), Scale()]
        self.table = {"gate": layers.Dense(8, activation="sigmoid"), "drop": layers.Dropout(0.2)}
        self.nested = keras.Sequential([layers.Dense(8), layers.Dropout(0.1), layers.Dense(1)])
        self.own = keras.Variable(np.ones(8, np.float32))
        self.seen = keras.metrics.Sum(name="seen")

    def call(self, x: Any, training: bool = False) -> Any:
        self.seen.update_state(1.0)
        x = self.shared(self.shared(x)) * self.own
        for layer in self.list:
            x = layer(x)
        x = self.table["drop"](x * self.table["gate"](x), training=training)
        return self.nested(x, training=training)


def subclassed() -> Any:
    model = Subclassed()
    model.compile(keras.optimizers.AdamW(0.01, use_ema=True, ema_overwrite_frequency=4), "mse")
    model(np.zeros((1, 8), np.float32))
    return model


def nested_functional() -> Any:
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8), layers.GaussianNoise(0.1)])
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(1)(layers.LayerNormalization()(inner(inner(inputs)))))
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model.compile(keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True), "mse")
    return model


def recurrent() -> Any:
    model = keras.Sequential(
        [keras.Input((8,)), layers.Reshape((4, 2)), layers.GRU(3, dropout=0.2), layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adafactor(0.01), "mse")
    return model


class TwoOptimizers(keras.Model):  # type: ignore[misc]  # Keras ships no types
    """Trains its two halves with optimizers of their own, as a GAN does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(8), layers.Dense(1)
        self.first_optimizer = keras.optimizers.Adam(0.01)
        self.second_optimizer = keras.optimizers.Adam(0.02)
        self(np.zeros((1, 8), np.float32))
        self.first_optimizer.build(self.first.trainable_variables)
        self.second_optimizer.build(self.second.trainable_variables)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))

    def train_step(self, data: Any) -> Any:
        x, y, _ = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        for half, optimizer in ((self.first, self.first_optimizer), (self.second, self.second_optimizer)):
            optimizer.apply(tape.gradient(loss, half.trainable_variables), half.trainable_variables)
        return {"loss": loss}


def two_optimizers() -> Any:
    model = TwoOptimizers()
    model.compile()
    return model


CASES = (functional, mixed_float16, bfloat16, subclassed, nested_functional, recurrent, two_optimizers)


def batch(step: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    x = rng.normal(size=(16, 8)).astype(np.float32)
    return x, x.sum(axis=1, keepdims=True)


def digest(model: Any) -> str:
    total = hashlib.sha256()
    for path, array in snapshot.take(model).items():
        total.update(path.encode() + array.tobytes())
    return total.hexdigest()


def checkpoints(directory: Path) -> Checkpoints:
    return Checkpoints(
        directory,
        keep=2,
        rank=0,
        round_number=1,
        world_size=1,
        fence=None,
        job="j",
        job_hash="h",
    )


def run(build: Callable[[], Any], directory: Path, resumed: bool) -> dict[str, Any]:
    model = build()
    saver = checkpoints(directory)
    restored = saver.restore(model)
    assert (restored is not None) == resumed
    step = restored.step if restored else 0
    losses = []
    while step < LAST:
        loss = model.train_on_batch(*batch(step), return_dict=True)["loss"]
        step += 1
        if step > SAVED:
            losses.append(float(loss).hex())
        if step == SAVED:
            assert saver.save(model, step, {"next": step}) is not None
    return {"losses": losses, "state": digest(model)}


def refusal(directory: Path, change: Callable[[], Any]) -> dict[str, str]:
    model = change()
    snapshot.prepare(model)
    before = digest(model)
    try:
        checkpoints(directory).restore(model)
    except CheckpointError as error:
        assert digest(model) == before, "a refused checkpoint must change nothing"
        return {"class": type(error).__name__, "message": error.message, "hint": error.hint}
    return {"class": "", "message": "accepted", "hint": ""}


def other_width() -> Any:
    return functional(9)


def other_optimizer() -> Any:
    model = functional()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def unbuilt() -> Any:
    model = keras.Sequential([layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def main() -> None:
    directory, resumed = Path(sys.argv[1]), sys.argv[2] == "resumed"
    keras.utils.set_random_seed(2 if resumed else 1)
    tf.config.experimental.enable_op_determinism()
    results = {}
    for build in reversed(CASES) if resumed else CASES:
        results[build.__name__] = run(build, directory / build.__name__, resumed)
    if resumed:
        target = directory / "functional"
        results["other_width"] = refusal(target, other_width)
        results["other_optimizer"] = refusal(target, other_optimizer)
        try:
            checkpoints(target).restore(unbuilt())
        except CheckpointError as error:
            results["unbuilt"] = {"class": type(error).__name__, "message": error.message}
    print(json.dumps(results))


main()
