"""Data whose order is a function of (seed, epoch, step, global batch): `from_arrays`.

Owns the way from arrays to this rank's batches. The arithmetic is in `order`; no rank talks to another here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from phalanx.errors import IncompatibleError
from phalanx.train import order
from phalanx.train.shuffling import shuffled


@dataclass(frozen=True)
class ArrayData:
    """Examples in memory (or memory-mapped): made by `from_arrays`.

    `arrays` is (x,), (x, y) or (x, y, sample_weight), each a nest of tensors or memory maps with
    `examples` rows.
    """

    arrays: tuple[Any, ...]
    examples: int
    shuffle: bool

    def training(
        self, *, seed: int, global_batch: int, world_size: int = 1, rank: int = 0, start_step: int = 0
    ) -> tf.data.Dataset:
        """This rank's share of the global batches of steps `start_step`, `start_step + 1`, ... without end.

        Starting later costs nothing. All batches of a rank have the same size.
        """
        start, stop = order.share(global_batch, world_size, rank)
        offsets = tf.range(start, stop, dtype=tf.int64)

        def batch_of(step: Any) -> Any:
            return self._take(self._indices(step * global_batch + offsets, seed), stop - start)

        return tf.data.Dataset.counter(start_step).map(_as_written(batch_of)).prefetch(2)

    def evaluation(self, *, batch: int, world_size: int = 1, rank: int = 0) -> tf.data.Dataset:
        """This rank's share of all examples, in order, each exactly once over all ranks.

        `batch` counts the examples of all ranks together. Ranks may get different numbers of batches.
        """
        ranges = order.evaluation_shares(self.examples, batch, world_size, rank)
        bounds = np.asarray(ranges, dtype=np.int64).reshape(-1, 2)

        def batch_of(bound: Any) -> Any:
            return self._take(tf.range(bound[0], bound[1]), None)

        return tf.data.Dataset.from_tensor_slices(bounds).map(_as_written(batch_of)).prefetch(2)

    def _indices(self, positions: Any, seed: int) -> Any:
        """Which examples stand at `positions` of the endless stream (int64 vector in, int64 vector out)."""
        epoch, within = positions // self.examples, positions % self.examples
        return shuffled(within, seed=seed, epoch=epoch, examples=self.examples) if self.shuffle else within

    def _take(self, indices: Any, size: int | None) -> Any:
        """The examples at `indices`; `size` is how many these are, when that is known before."""
        return tf.nest.map_structure(lambda leaf: _rows(leaf, indices, size), self.arrays)


def from_arrays(x: Any, y: Any = None, sample_weight: Any = None, *, shuffle: bool = True) -> ArrayData:
    """Examples from NumPy arrays, or nests (dicts, tuples) of them; the first axis counts examples.

    Arrays are copied once, but for memory maps (`np.load(..., mmap_mode="r")`), which are read row by row and
    never loaded whole. Floats are given to the model as `keras.config.floatx()`. Class weights are a
    `sample_weight` array: `np.where(y == 1, 10.0, 1.0)`. With `shuffle` each epoch has its own order, drawn
    from the run's seed. Call it after `init()`.

    Raises IncompatibleError for arrays of different length or without examples.
    """
    if sample_weight is not None and y is None:
        raise IncompatibleError("sample_weight was given without y", "pass y as well")
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    arrays = tuple(tf.nest.map_structure(_as_array, value) for value in given.values() if value is not None)
    leaves = tf.nest.flatten(arrays)
    if any(leaf.ndim == 0 for leaf in leaves):
        raise IncompatibleError(
            "a single number was given where an array is needed",
            "wrap lists of numbers: numpy.asarray([...])",
        )
    lengths = {len(leaf) for leaf in leaves}
    if len(lengths) != 1 or lengths == {0}:
        told = ", ".join(
            f"{name}: {[len(leaf) for leaf in tf.nest.flatten(value)]}"
            for name, value in zip(given, arrays, strict=False)
        )
        raise IncompatibleError(
            f"the arrays need the same number of examples, at least one; they have {told}",
            "the first axis of every array counts examples",
        )
    return ArrayData(tf.nest.map_structure(_in_memory, arrays), lengths.pop(), shuffle)


def _as_array(value: Any) -> Any:
    """`value` as an array; a memory map stays one."""
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _in_memory(leaf: Any) -> Any:
    """`leaf` as a tensor in the memory of the host; a memory map stays what it is."""
    if isinstance(leaf, np.memmap):
        return leaf
    with tf.device("CPU:0"):
        return tf.constant(_standard(leaf))


def _rows(leaf: Any, indices: Any, size: int | None) -> Any:
    """The rows of `leaf` at `indices`, `size` of them."""
    if not isinstance(leaf, np.memmap):
        return tf.ensure_shape(tf.gather(leaf, indices), (size, *leaf.shape[1:]))
    # Only a memory map is read through Python: a Python function in a pipeline that still reads ahead can
    # keep an interpreter from exiting.
    dtype = _standard(leaf[:0]).dtype
    rows = tf.numpy_function(lambda chosen: _standard(leaf[chosen]), [indices], tf.as_dtype(dtype))
    return tf.ensure_shape(rows, (size, *leaf.shape[1:]))


def _standard(rows: Any) -> Any:
    """Rows as the model gets them: floats as Keras' float type."""
    if rows.dtype.kind == "f" and rows.dtype.name != keras.config.floatx():
        return np.asarray(rows).astype(keras.config.floatx())
    return rows


def _as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as tf.data may trace it, without AutoGraph rewriting it."""
    traced: Callable[..., Any] = tf.autograph.experimental.do_not_convert(function)
    return traced
