"""Worker program: trains one small model after the other and writes down how each ended.

Usage: training_cases.py OUT_DIR. Writes OUT_DIR/rank-R.npz (arrays named CASE/NAME) and OUT_DIR/rank-R.json.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import phalanx.train
from phalanx.contract import WorkerEnv, board_file
from phalanx.errors import IncompatibleError
from phalanx.events.board import read_board

run = phalanx.train.init(global_batch=16, seed=7)
# Many models, one after the other: none of them is to go on from another's checkpoint.
run = replace(run, settings=replace(run.settings, checkpoint_dir=None))

import keras  # noqa: E402  # after init, which must come before anything of TensorFlow
import tensorflow as tf  # noqa: E402

STEPS = 12
VALIDATED = ("functional_sgd", "uneven_shares", "first_fit", "finished_already")
rng = np.random.default_rng(0)
X = rng.normal(size=(52, 6)).astype("float32")
Y = (X[:, :1] - X[:, 1:2] > 0).astype("float32")
TOKENS = rng.integers(0, 20, size=(52, 5)).astype("int32")
data = phalanx.train.data
arrays: dict[str, np.ndarray[Any, Any]] = {}
facts: dict[str, Any] = {}
cases: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    cases[function.__name__] = function
    return function


def with_batch(global_batch: int, **changes: Any) -> Any:
    return replace(run, settings=replace(run.settings, global_batch=global_batch, **changes))


def functional(optimizer: Callable[[], Any], **options: Any) -> Any:
    """Two dense layers, seeded; made and compiled as a user would."""
    with run.scope():
        init = [keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
        inputs = keras.Input((6,))
        hidden = keras.layers.Dense(8, activation="tanh", kernel_initializer=init[0])(inputs)
        model = keras.Model(
            inputs, keras.layers.Dense(1, kernel_initializer=init[1], dtype="float32")(hidden)
        )
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(
            optimizer(),
            loss,
            metrics=["accuracy", keras.metrics.AUC(from_logits=True, name="auc")],
            **options,
        )
    return model


def note(name: str, model: Any, **values: Any) -> None:
    """Write down the weights, and what else is to be compared."""
    for index, weight in enumerate(model.get_weights()):
        arrays[f"{name}/weight-{index}"] = weight
    for index, variable in enumerate(model.optimizer.variables):
        arrays[f"{name}/optimizer-{index}"] = np.asarray(variable.numpy())
    facts[name] = values


def fit(name: str, model: Any, source: Any = None, gang: Any = None, **options: Any) -> Any:
    validation = data.from_arrays(X[:21], Y[:21]) if name in VALIDATED else None
    result = (gang or run).fit(
        model, source or data.from_arrays(X, Y), steps=STEPS, validation=validation, log_every=5, **options
    )
    history = [[step, dict(metrics)] for step, metrics in result.history]
    note(name, model, history=history, validation=dict(result.validation))
    return result


@case
def functional_sgd() -> None:
    fit("functional_sgd", functional(lambda: keras.optimizers.SGD(0.1, momentum=0.9)))


@case
def functional_adam_clipped() -> None:
    fit("functional_adam_clipped", functional(lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.05)))


@case
def several_steps_an_execution() -> None:
    schedule: Callable[[], Any] = lambda: keras.optimizers.schedules.CosineDecay(0.05, STEPS)  # noqa: E731
    fit(
        "several_steps_an_execution",
        functional(lambda: keras.optimizers.AdamW(schedule()), steps_per_execution=4),
    )


@case
def sequential_unbuilt() -> None:
    with run.scope():
        model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    fit("sequential_unbuilt", model)


class OwnStep(keras.Model):  # type: ignore[misc]  # Keras ships no type information
    """A subclass with its own train_step, as in the guides of Keras."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(5, activation="tanh")
        self.out = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    def train_step(self, batch: Any) -> Any:
        x, y = batch
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        for metric in self.metrics:
            if metric.name != "loss":
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


@case
def own_train_step() -> None:
    with run.scope():
        model = OwnStep()
        model.compile(keras.optimizers.Adam(0.01, clipvalue=0.01), "mse", metrics=["mae"])
    fit("own_train_step", model)


@case
def uneven_shares() -> None:
    fit("uneven_shares", functional(lambda: keras.optimizers.Adam(0.01)), gang=with_batch(13))


@case
def sparse_gradients() -> None:
    with run.scope():
        model = keras.Sequential(
            [
                keras.layers.Embedding(20, 4),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1, kernel_regularizer=keras.regularizers.L2(0.01)),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), "mse")
    source = data.from_arrays(TOKENS, Y, np.where(Y > 0, 3.0, 1.0)[:, 0])
    fit("sparse_gradients", model, source, gang=with_batch(13))


@case
def synchronized_batch_norm() -> None:
    with run.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(4),
                keras.layers.BatchNormalization(synchronized=True),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05), "mse")
    fit("synchronized_batch_norm", model)


@case
def compiled_by_xla() -> None:
    model = functional(lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.05))
    fit("compiled_by_xla", model, gang=with_batch(16, xla=True))


def with_policy(policy: str, make: Callable[[], Any]) -> Any:
    keras.config.set_dtype_policy(policy)
    try:
        return make()
    finally:
        keras.config.set_dtype_policy("float32")


@case
def bfloat16() -> None:
    fit("bfloat16", with_policy("mixed_bfloat16", lambda: functional(lambda: keras.optimizers.Adam(0.01))))


@case
def float16_overflow_on_one_rank() -> None:
    """One example overflows half precision, in one rank's share: all must skip the step together."""
    model = with_policy(
        "mixed_float16", lambda: functional(lambda: keras.optimizers.SGD(0.1, global_clipnorm=1.0))
    )
    x = X.copy()
    x[3] = 3e38
    fit("float16_overflow_on_one_rank", model, data.from_arrays(x, Y, shuffle=False))


@case
def dropout() -> None:
    with run.scope():
        model = keras.Sequential([keras.layers.Dropout(0.5, seed=3), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse")
    fit("dropout", model)
    # One mask of each rank, from the states after training.
    arrays["own/mask"] = np.asarray(model.layers[0](np.ones((1, 64), "float32"), training=True))


@case
def plain_dataset() -> None:
    """A tf.data.Dataset of this rank's own batches: the same global batches as the shares of an array."""
    own = 16 // run.world_size
    order = [(step * 16 + run.rank * own + i) % len(X) for step in range(STEPS) for i in range(own)]
    dataset = tf.data.Dataset.from_tensor_slices((X[order], Y[order])).batch(own)
    fit("plain_dataset", functional(lambda: keras.optimizers.SGD(0.1)), lambda run: dataset)


@case
def stock_fit() -> None:
    """Keras' own fit on 52 examples: the last batch of an epoch has 4 examples of 16."""
    model = run.prepare(functional(lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1)))
    history = model.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0, validation_data=(X, Y))
    evaluated = model.evaluate(X, Y, batch_size=16, verbose=0, return_dict=True)
    note("stock_fit", model, history=history.history, evaluated=evaluated)
    arrays["stock_fit/predicted"] = model.predict(X, batch_size=16, verbose=0)
    if run.is_chief:
        path = Path(sys.argv[1]) / "saved.keras"
        model.save(path)


@case
def stock_fit_ragged_share() -> None:
    """Batches of 15 and a last one of 7 examples: shares differ between ranks."""
    with run.scope():
        model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
    run.prepare(model)
    model.fit(X, Y, batch_size=15, epochs=2, shuffle=False, verbose=0)
    note("stock_fit_ragged_share", model)
    with run.scope():
        model.compile(keras.optimizers.Adam(0.01, clipnorm=0.01), "mse")  # compiled anew, prepared as before
    logs = model.train_on_batch(X[:8], Y[:8])
    note("train_on_batch", model, is_number=bool(np.isfinite(logs)))


@case
def steps_before_this_process() -> None:
    """The stock fit of a script that has restored 40 steps itself: the board counts on from there."""
    model = run.prepare(functional(lambda: keras.optimizers.SGD(0.1)))
    model.optimizer.iterations.assign(40)
    model.fit(X[:32], Y[:32], batch_size=16, epochs=2, shuffle=False, verbose=0)
    worker = WorkerEnv.from_env(os.environ)
    if worker is not None:
        board = read_board(board_file(Path(worker.run_dir), worker.round, worker.rank))
        facts["steps_before_this_process"] = board and board.steps_done


@case
def finished_already() -> None:
    """A second model goes on from the checkpoint of the first, and has nothing left to do."""
    settings = replace(
        run.settings, checkpoint_dir=Path(sys.argv[1]) / "checkpoints", checkpoint_every_steps=5
    )
    gang = replace(run, settings=settings)
    first = functional(lambda: keras.optimizers.Adam(0.01))
    fit("first_fit", first, gang=gang)
    second = functional(lambda: keras.optimizers.Adam(0.5))
    result = fit("finished_already", second, gang=gang)
    facts["finished_already"].update(resumed_from=result.resumed_from, step=result.step)


@case
def data_ends_too_early() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).take(3)
    try:
        run.fit(functional(lambda: keras.optimizers.SGD(0.1)), dataset, steps=STEPS)
    except IncompatibleError as error:
        facts["data_ends_too_early"] = str(error)


@case
def refusals() -> None:
    refused = {}

    def expect(name: str, make: Callable[[], Any], gang: Any = run) -> None:
        try:
            gang.prepare(make())
        except IncompatibleError as error:
            refused[name] = str(error)

    def plain_batch_norm() -> Any:
        with run.scope():
            model = keras.Sequential(
                [keras.Input((6,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
            )
            model.compile("sgd", "mse")
        return model

    def outside_scope() -> Any:
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def own_step() -> Any:
        with run.scope():
            model = OwnStep()
            model.compile("sgd", "mse")
        return model

    sgd = keras.optimizers.SGD

    def expect_no_fit(name: str, gang: Any, source: Any, **options: Any) -> None:
        try:
            gang.fit(functional(lambda: sgd(0.1)), source, **options)
        except IncompatibleError as error:
            refused[name] = str(error)

    arrays_of_data = data.from_arrays(X, Y)
    expect_no_fit("no_steps", run, arrays_of_data)
    expect_no_fit("no_data", run, [X, Y], steps=3)
    expect_no_fit(
        "no_global_batch",
        replace(run, settings=replace(run.settings, global_batch=None)),
        arrays_of_data,
        steps=3,
    )
    expect("accumulation", lambda: functional(lambda: sgd(0.1, gradient_accumulation_steps=2)))
    expect("jit", lambda: functional(lambda: sgd(0.1), jit_compile=True))
    expect("batch_norm", plain_batch_norm)
    expect("scope", outside_scope)
    expect("xla", own_step, with_batch(16, xla=True))
    expect("no_model", lambda: "model")
    expect("not_compiled", lambda: keras.Sequential([keras.layers.Dense(1)]))
    facts["refusals"] = refused


@case
def disagreement() -> None:
    model = functional(lambda: keras.optimizers.SGD(0.1))
    try:
        run.fit(model, data.from_arrays(X, Y), steps=STEPS, log_every=5 + run.rank)
    except IncompatibleError as error:
        facts["disagreement"] = str(error)


def main() -> None:
    chosen = sys.argv[2:] or list(cases)
    # Its failed collective would end what comes after it.
    if run.world_size > 1:
        chosen.remove("data_ends_too_early")
    for name in chosen:
        cases[name]()
        print("done", name, flush=True)
    out = Path(sys.argv[1])
    np.savez(out / f"rank-{run.rank}.npz", **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle
    (out / f"rank-{run.rank}.json").write_text(json.dumps(facts))


try:
    main()
except BaseException:  # noqa: BLE001  # printed, then left by os._exit as any worker
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)
sys.stdout.flush()
os._exit(0)
