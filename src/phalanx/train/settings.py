"""What a training run is asked to do: the job file's words, and the script's where the job file is silent.

Pure: no TensorFlow, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from phalanx.contract import WorkerEnv
from phalanx.errors import IncompatibleError

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclass(frozen=True)
class Settings:
    """Settings of one run, equal on all ranks.

    `steps` and `global_batch` are None when neither job file nor script named them. `precision` is a Keras
    policy name. `xla` compiles the forward and backward pass. Without `checkpoint_dir` nothing is saved.
    """

    steps: int | None = None
    global_batch: int | None = None
    seed: int = 0
    precision: str = "float32"
    xla: bool = False
    checkpoint_dir: Path | None = None
    checkpoint_every_steps: int = 500
    checkpoint_keep: int = 5


def resolve(env: WorkerEnv | None, script: Settings) -> Settings:
    """Merge what the agent says (`env`, None without an agent) over what the script says.

    The job file wins wherever it says something; float32 and no XLA are its way to say nothing.
    Raises IncompatibleError for values that cannot be.
    """
    if env is None:
        merged = script
    else:
        merged = Settings(
            steps=env.steps if env.steps is not None else script.steps,
            global_batch=env.global_batch if env.global_batch is not None else script.global_batch,
            seed=env.seed if env.seed is not None else script.seed,
            precision=env.precision if env.precision != "float32" else script.precision,
            xla=env.xla or script.xla,
            checkpoint_dir=Path(env.checkpoint_dir),
            checkpoint_every_steps=env.checkpoint_every_steps,
            checkpoint_keep=env.checkpoint_keep,
        )
    _check(merged, env.world_size if env is not None else 1)
    return merged


def _check(settings: Settings, world_size: int) -> None:
    if settings.precision not in PRECISIONS:
        raise IncompatibleError(f"precision is {settings.precision!r}", f"use one of {', '.join(PRECISIONS)}")
    for name in ("steps", "global_batch", "checkpoint_every_steps", "checkpoint_keep"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise IncompatibleError(f"{name} is {value}", f"{name} is a whole number from 1 on")
    # set_random_seed seeds NumPy too, which takes 32 bits.
    if not 0 <= settings.seed < 2**32:
        raise IncompatibleError(f"seed is {settings.seed}", "a seed is a whole number from 0 to 4294967295")
    if settings.global_batch is not None and settings.global_batch < world_size:
        raise IncompatibleError(
            f"global_batch is {settings.global_batch}, fewer examples than the {world_size} workers",
            f"raise train.global_batch to {world_size} or more, or ask for fewer workers",
        )
