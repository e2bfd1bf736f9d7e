"""A small model with every fault that a rank can show, told by its arguments (test_failure_matrix.py)."""

from __future__ import annotations

import argparse
import os
import sys
import threading

import keras
import numpy as np
import tensorflow as tf

import phalanx.train

parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int, default=8, help="another number is another model")
parser.add_argument("--step-ms", type=int, default=15, help="how long a step takes at least")
parser.add_argument("--raise-in-rank", type=int, help="user code of this rank raises, in every round")
parser.add_argument("--leave-in-rank", type=int, help="this rank leaves with 0 after a few steps, in round 1")
parser.add_argument("--absent-rank", type=int, help="this rank leaves with 0 before it joins, in every round")
parser.add_argument("--refuse-shared-port", action="store_true", help="TensorFlow binds its port alone")
options = parser.parse_args()
if options.refuse_shared_port:
    os.environ["TF_GRPC_REUSE_PORT"] = "0"

if options.absent_rank == int(os.environ.get("PHALANX_WORKER_RANK", "0")):
    sys.exit(0)
tf.config.experimental.enable_op_determinism()
run = phalanx.train.init()
if options.raise_in_rank == run.rank:
    raise ValueError("income must not be negative: -7")

random = np.random.default_rng(0)
x = random.normal(size=(512, 8)).astype("float32")
y = (x[:, :3].sum(axis=1, keepdims=True) > 0).astype("float32")
pause = threading.Event()
batches = 0


def slow(features: np.ndarray) -> np.ndarray:
    """Take time as a real input pipeline would; in one case leave in the middle."""
    global batches
    batches += 1
    if options.leave_in_rank == run.rank and run.round == 1 and batches == 30:
        os._exit(0)
    pause.wait(options.step_ms / 1000)
    return features


def dataset(run: phalanx.train.Run) -> tf.data.Dataset:
    """This rank's batches of 8, for ever."""
    own = slice(run.rank, None, run.world_size)
    data = tf.data.Dataset.from_tensor_slices((x[own], y[own])).repeat().batch(8, drop_remainder=True)

    def wait(features: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        waited = tf.numpy_function(slow, [features], tf.float32)
        return tf.ensure_shape(waited, features.shape), labels

    return data.map(wait)


with run.scope():
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(options.units, "relu"), keras.layers.Dense(1, "sigmoid")]
    )
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
result = run.fit(model, dataset)
sys.stdout.write(f"done at step {result.step}\n")
