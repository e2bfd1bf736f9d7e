"""A custom training loop under MultiWorkerMirroredStrategy that does not import phalanx.

    phalanx run train.py -n 2
    phalanx run train.py -n 2 -- --steps 50

Each worker is started with TF_CONFIG and supervised. When one dies all start again, so this script keeps its
own checkpoints: the chief writes, everybody reads. Those of `phalanx.train` are safer and need less code.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

GLOBAL_BATCH = 64


def synthetic(rank: int, workers: int) -> tf.data.Dataset:
    """A linear problem with noise; each worker takes every `workers`-th example."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4096, 16)).astype("float32")
    y = (x @ rng.normal(size=(16, 1)) + 0.1 * rng.normal(size=(4096, 1))).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shard(workers, rank)
    return dataset.shuffle(4096, seed=0).repeat().batch(GLOBAL_BATCH // workers).prefetch(2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("index", 0)
    workers = strategy.num_replicas_in_sync

    with strategy.scope():
        weights = tf.Variable(tf.zeros((16, 1)), name="weights")
        step = tf.Variable(0, dtype=tf.int64, name="step")

    checkpoint = tf.train.Checkpoint(weights=weights, step=step)
    manager = tf.train.CheckpointManager(checkpoint, str(options.checkpoints), max_to_keep=2)
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint)
        print(f"rank {rank}: goes on from step {int(step.numpy())}", flush=True)

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weights - y)) / workers
        gradient = tape.gradient(loss, weights)
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradient)
        weights.assign_sub(0.1 * gradient)
        step.assign_add(1)
        return loss

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def train_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(replica_step, args=(x, y))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for x, y in synthetic(rank, workers):
        if int(step.numpy()) >= options.steps:
            break
        loss = float(train_step(x, y))
        done = int(step.numpy())
        if done % 50 == 0:
            print(f"rank {rank}: step {done} loss {loss:.5f}", flush=True)
            if rank == 0:
                manager.save()


if __name__ == "__main__":
    main()
