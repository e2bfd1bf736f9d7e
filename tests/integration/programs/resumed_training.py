"""Worker program: trains with everything that has a state, and ends itself on the way as the test says.

Usage: resumed_training.py OUT_DIR. The environment variable END names, for each round, "kill RANK STEP" or
"stop RANK STEP" (SIGTERM to the agent), separated by commas. Writes OUT_DIR/rank-R.npz at the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

import phalanx.train

run = phalanx.train.init()

import keras  # noqa: E402  # after init, which must come before anything of TensorFlow
import tensorflow as tf  # noqa: E402

tf.config.experimental.enable_op_determinism()


def end_as_asked() -> None:
    """Make the board's note of a step the place where this round ends."""
    planned = os.environ.get("END", "").split(",")
    if run.round > len(planned) or not planned[run.round - 1]:
        return
    how, rank, at_step = planned[run.round - 1].split()
    board = run.reporter.board
    if board is None or run.rank != int(rank):
        return
    note = board.steps_done

    def steps_done(step: int, examples: int) -> None:
        note(step, examples)
        if step == int(at_step):
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getppid(), signal.SIGTERM)

    board.steps_done = steps_done  # type: ignore[method-assign]


rng = np.random.default_rng(1)
x = rng.normal(size=(150, 8)).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
with run.scope():
    model = keras.Sequential(
        [
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
end_as_asked()
result = run.fit(model, phalanx.train.data.from_arrays(x, y), log_every=7)
weights = {f"weight-{index}": weight for index, weight in enumerate(model.get_weights())}
out = Path(sys.argv[1]) / f"rank-{run.rank}.npz"
np.savez(out, resumed_from=result.resumed_from, **weights)
