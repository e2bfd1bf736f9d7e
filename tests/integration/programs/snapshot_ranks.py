"""Two ranks save and restore, each alone while the other waits outside TensorFlow: snapshot_ranks.py DIR.

The other rank's state is made different before the restore, so that equal weights afterwards prove the
restore, and a save or restore that needed the other rank would hang.
"""

import hashlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from phalanx.train import snapshot
from phalanx.train.checkpointing import Checkpoints
from waiting import wait_for

directory = Path(sys.argv[1])
rank: int = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def build() -> Any:
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, dtype="mixed_bfloat16"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def digest(model: Any) -> str:
    total = hashlib.sha256()
    for path, array in sorted(snapshot.take(model).items()):
        total.update(path.encode() + array.tobytes())
    return total.hexdigest()


def meet(name: str) -> None:
    """Wait for the other rank without a collective."""
    (directory / f"{name}-{rank}").touch()
    wait_for((directory / f"{name}-{1 - rank}").exists, 60, name)


def alone(name: str, work: Any) -> Any:
    """Let rank 0 work while rank 1 waits, then the other way round."""
    results = []
    for turn in (0, 1):
        if turn == rank:
            results.append(work())
        meet(f"{name}-{turn}")
    return results[0]


def main() -> None:
    context.context().configure_coordination_service(service_type="")
    keras.utils.set_random_seed(rank)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build()
        saver = Checkpoints(
            directory / "checkpoints",
            keep=2,
            rank=rank,
            round_number=1,
            world_size=2,
            fence=None,
            job="j",
            job_hash="h",
        )
        assert saver.restore(model) is None

    def replica_step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32) - y)) / 2.0
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    step = tf.function(lambda x, y: strategy.run(replica_step, args=(x, y)))

    def train(first: int, last: int) -> str:
        for number in range(first, last):
            x = np.random.default_rng([number, rank]).normal(size=(8, 8)).astype(np.float32)
            step(tf.constant(x), tf.constant(x.sum(axis=1, keepdims=True)))
        return digest(model)

    told = {"at 2": train(0, 2)}
    saved = alone("save", lambda: saver.save(model, 2, {"next": 2}))
    assert (saved is not None) == (rank == 0)
    told["after save"] = digest(model)
    told["at 4"] = train(2, 4)
    restored = alone("restore", lambda: saver.restore(model))
    assert restored is not None
    told["restored"] = digest(model)
    told["again at 4"] = train(restored.step, 4)
    print(json.dumps(told), flush=True)
    meet("end")


try:
    main()
except BaseException:  # noqa: BLE001  # told, and then the process must not wait for its peer at exit
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)
os._exit(0)
