"""Prints, as JSON, which examples `from_arrays` gives to whom and when."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from phalanx.errors import IncompatibleError
from phalanx.train import data, sources

N, BATCH, STEPS = 23, 10, 12


def steps_of(source: data.ArrayData, world_size: int, start_step: int, steps: int) -> list[list[int]]:
    """The global batches of `steps` steps, put together from the shares of all ranks."""
    batches: list[list[int]] = [[] for _ in range(steps)]
    for rank in range(world_size):
        dataset = source.training(
            seed=5, global_batch=BATCH, world_size=world_size, rank=rank, start_step=start_step
        )
        for step, (x, *_) in enumerate(dataset.take(steps)):
            batches[step] += x.numpy().tolist()
    return batches


def refused(*arguments: Any) -> str:
    try:
        data.from_arrays(*arguments)
    except IncompatibleError as error:
        return str(error)
    return ""


def evaluated(world_size: int) -> list[int]:
    seen: list[int] = []
    for rank in range(world_size):
        for batch in shuffled.evaluation(batch=BATCH, world_size=world_size, rank=rank):
            seen += batch[0].numpy().tolist()
    return seen


shuffled = data.from_arrays(np.arange(N))
in_order = data.from_arrays(np.arange(N), shuffle=False)
nested = data.from_arrays(
    {"a": np.arange(6.0).reshape(3, 2), "t": np.array(["x", "ü", "z"])},
    (np.arange(3), np.zeros((3, 4))),
    np.array([1.0, 2.0, 3.0]),
    shuffle=False,
)
x, y, weight = next(iter(nested.training(seed=0, global_batch=2)))

# A file of 8 GiB with holes: mapped, never read whole.
path = Path(sys.argv[1]) / "large.bin"
mapped = np.memmap(path, dtype="uint8", mode="w+", shape=(1 << 20, 1 << 13))
mapped[123456, 7] = 42
large = data.from_arrays(mapped, shuffle=False)
row = next(iter(large.training(seed=0, global_batch=1, start_step=123456)))[0]

orders = next(iter(shuffled.training(seed=7, global_batch=400 * N)))[0].numpy().reshape(400, N)


def tuned(dataset: tf.data.Dataset) -> bool:
    return dataset.options().autotune.enabled is not False


plain = tf.data.Dataset.range(8)
wish = tf.data.Options()
wish.autotune.enabled = True

print(
    json.dumps(
        {
            "tuned": [
                tuned(plain),
                tuned(sources.untuned(plain)),
                tuned(sources.untuned(plain.with_options(wish))),
            ],
            "by_world_size": {world: steps_of(shuffled, world, 0, STEPS) for world in (1, 2, 3, 4)},
            "resumed": steps_of(shuffled, 2, 7, STEPS - 7),
            "orders": orders.tolist(),
            "far": steps_of(shuffled, 1, 10**12, 1),
            "in_order": steps_of(in_order, 2, 0, 3),
            "one_example": steps_of(data.from_arrays(np.arange(1)), 1, 0, 1),
            "evaluated": {world: evaluated(world) for world in (1, 2, 3, 4)},
            "nested": {
                "a": [str(x["a"].dtype.name), x["a"].numpy().tolist(), x["a"].shape.as_list()],
                "t": [value.decode() for value in x["t"].numpy().tolist()],
                "y": [y[0].numpy().tolist(), y[1].shape.as_list()],
                "weight": weight.numpy().tolist(),
            },
            "mapped": int(row.numpy()[0, 7]),
            "refused": {
                "lengths": refused(np.zeros(3), np.zeros(4)),
                "empty": refused(np.zeros((0, 2))),
                "numbers": refused([1, 2, 3]),
                "weight_alone": refused(np.zeros(3), None, np.zeros(3)),
            },
        }
    )
)
