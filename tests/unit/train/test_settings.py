"""Whose word counts: the job file's, then the script's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.contract import WorkerEnv
from phalanx.errors import IncompatibleError
from phalanx.train.settings import Settings, resolve

ENV = WorkerEnv(
    run_dir="/run",
    job="job",
    job_hash="0",
    round=1,
    rank=0,
    world_size=4,
    local_rank=0,
    fence="",
    checkpoint_dir="/run/checkpoints",
    checkpoint_every_steps=7,
    checkpoint_keep=3,
    grace_s=1.0,
)
SCRIPT = Settings(
    steps=100, global_batch=8, seed=5, precision="mixed_bfloat16", xla=True, checkpoint_dir=Path("/mine")
)


def test_without_an_agent_the_script_decides() -> None:
    assert resolve(None, SCRIPT) == SCRIPT


def test_the_script_decides_what_the_job_file_leaves_open() -> None:
    merged = resolve(ENV, SCRIPT)
    assert (merged.steps, merged.global_batch, merged.seed) == (100, 8, 5)
    assert (merged.precision, merged.xla) == ("mixed_bfloat16", True)
    assert (merged.checkpoint_dir, merged.checkpoint_every_steps, merged.checkpoint_keep) == (
        Path("/run/checkpoints"),
        7,
        3,
    )


def test_the_job_file_wins_where_it_speaks() -> None:
    env = replace(ENV, steps=9, global_batch=4, seed=0, precision="mixed_float16")
    merged = resolve(env, SCRIPT)
    assert (merged.steps, merged.global_batch, merged.seed, merged.precision) == (9, 4, 0, "mixed_float16")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"precision": "float8"}, "one of float32, mixed_bfloat16, mixed_float16"),
        ({"steps": 0}, "steps is 0"),
        ({"global_batch": -1}, "global_batch is -1"),
        ({"seed": 2**32}, "seed is 4294967296"),
        ({"global_batch": 3}, "fewer examples than the 4 workers"),
    ],
)
def test_values_that_cannot_be_are_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(IncompatibleError) as caught:
        resolve(ENV, replace(SCRIPT, **change))  # type: ignore[arg-type]
    assert words in str(caught.value)
