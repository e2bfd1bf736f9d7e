"""`phalanx init DIR`: write a job file and a training script that run at once. Overwrites nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

SCHEMA_FILE = "job.schema.json"

_JOB = """\
# yaml-language-server: $schema={schema}
# A training job of Phalanx. Run it:      phalanx run job.yaml
# See what would run, and why:            phalanx plan job.yaml --explain
# Change a value for one run:             phalanx run job.yaml --set train.steps=200
apiVersion: phalanx/v1
kind: TrainingJob
name: {name}

# A script, relative to this file, or module:function. Every worker runs it.
entrypoint: train.py
args: [--learning-rate, 0.01]

# Environment of the workers.
# env:
#   DATA_DIR: /data

workers:
  count: 2 # processes that train one model together
  # cpus: 4 # cores for each; default: the machine's, shared evenly

train:
  steps: 300
  global_batch: 64 # examples in a step, over all workers together
  seed: 1
  # precision: mixed_bfloat16
  # xla: true

checkpoint:
  # dir: checkpoints # default: in the directory of the run
  every_steps: 50
  keep: 3

# failure:
#   max_restarts: 10
#   grace_s: 30 # from SIGTERM to SIGKILL, to save a checkpoint in
#   no_progress_rounds: 3

# logs:
#   tail_lines: 15
"""

_TRAIN = '''\
"""Learn where a point lies: inside the unit circle or outside. Data is made here, so it runs anywhere.

    phalanx run job.yaml                   on all workers, supervised, from the newest checkpoint on
    python train.py                        in this one process
"""

import argparse

import keras
import numpy as np

import phalanx.train


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in a square, and whether each is inside the circle that covers half of it."""
    x = np.random.default_rng(seed).uniform(-1.25, 1.25, size=(count, 2)).astype("float32")
    return x, (np.square(x).sum(axis=1) < 1).astype("float32")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", type=float, default=0.01)
    options = parser.parse_args()

    run = phalanx.train.init(steps=300, global_batch=64)  # what job.yaml says comes first
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((2,)),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(options.learning_rate),
            loss="binary_crossentropy",
            metrics=["accuracy"],
        )
    result = run.fit(
        model,
        phalanx.train.data.from_arrays(*points(4096, seed=1)),
        validation=phalanx.train.data.from_arrays(*points(1024, seed=2)),
    )
    if run.is_chief:
        print(f"step {result.step}: accuracy on new points {result.validation['accuracy']:.3f}")


if __name__ == "__main__":
    main()
'''


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write; made when missing.")],
) -> None:
    """Write a commented job file and a train.py that run at once. Existing files are never overwritten."""
    from phalanx.errors import UsageError
    from phalanx.spec.names import job_name_from
    from phalanx.spec.schema import schema_text

    files = {
        "job.yaml": _JOB.format(schema=SCHEMA_FILE, name=job_name_from(directory.absolute().name)),
        "train.py": _TRAIN,
        SCHEMA_FILE: schema_text(),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        taken = [name for name in files if (directory / name).exists()]
        if taken:
            raise UsageError(
                f"{directory} already has {', '.join(taken)}; nothing was written", "name another directory"
            )
        for name, text in files.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(
            f"{directory} cannot be written: {error.strerror}", "name a directory that you can write"
        ) from error
    job = shlex.quote(str(directory / "job.yaml"))
    print(f"wrote {', '.join(files)}\n\n  phalanx run {job}")
