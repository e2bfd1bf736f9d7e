"""What `run.fit` accepts as data, and how this rank's batches come out of it. Knows no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from phalanx.errors import IncompatibleError
from phalanx.train import order
from phalanx.train.data import ArrayData

if TYPE_CHECKING:
    from phalanx.train.context import Run

Source: TypeAlias = "ArrayData | tf.data.Dataset"


def resolve(source: Any, run: Run) -> Source:
    """Call `source` with the run when it is a function. Raises IncompatibleError for what is no data."""
    made = source(run) if callable(source) else source
    if isinstance(made, ArrayData):
        if run.settings.global_batch is None:
            raise IncompatibleError(
                "nothing says how large a global batch is",
                "set train.global_batch in the job file, or phalanx.train.init(global_batch=...)",
            )
    elif not isinstance(made, tf.data.Dataset):
        raise IncompatibleError(
            f"a data set is needed, not {type(made).__name__}",
            "give phalanx.train.data.from_arrays(...), a tf.data.Dataset, or a function of run returning one",
        )
    return made


def training_batches(source: Source, run: Run, start_step: int) -> Any:
    """This rank's batches from `start_step` on, a tf.data.Dataset; a plain one gets there by skipping."""
    if not isinstance(source, ArrayData):
        return untuned(source.skip(start_step) if start_step else source)
    return untuned(
        source.training(
            seed=run.settings.seed,
            global_batch=run.settings.global_batch or 0,
            world_size=run.world_size,
            rank=run.rank,
            start_step=start_step,
        )
    )


def validation_batches(source: Source, run: Run) -> Any:
    """This rank's part of the validation data (a tf.data.Dataset)."""
    if not isinstance(source, ArrayData):
        return untuned(source)
    batch = run.settings.global_batch or 0
    return untuned(source.evaluation(batch=batch, world_size=run.world_size, rank=run.rank))


def untuned(dataset: Any) -> Any:
    """`dataset` without tf.data's tuner, unless its owner chose it.

    The end of an iterator joins the tuner's thread, which was seen to sleep for 10 s or more while all other
    ranks wait (TensorFlow 2.21). `AUTOTUNE` parallelism then is the size of the thread pool, at most 16.
    """
    if dataset.options().autotune.enabled is not None:
        return dataset
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def known_weight(source: Source, run: Run) -> tuple[bool, float | None]:
    """Whether this rank's share of a batch is known before the step, and if so what it counts."""
    if isinstance(source, ArrayData):
        return True, order.gradient_weight(run.settings.global_batch or 0, run.world_size, run.rank)
    return False, None
