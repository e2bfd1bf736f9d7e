"""Small checkpoints for tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.checkpoint.commit import commit
from phalanx.checkpoint.manifest import Manifest
from phalanx.checkpoint.payload import Array
from phalanx.checkpoint.store import Committed


def some_arrays(step: int = 1) -> dict[str, Array]:
    return {
        "model/dense/kernel": np.full((4, 3), step, np.float32),
        "model/dense/bias": np.arange(3, dtype=np.float64),
        "optimizer/adam/iteration": np.array(step, np.int64),
    }


def draft(step: int, round_number: int = 1) -> Manifest:
    return Manifest(
        step=step,
        round=round_number,
        world_size=2,
        job="credit",
        job_hash="abc",
        created="2030-01-01T00:00:00+00:00",
        data_position={"epoch": 1},
        seed=7,
        versions={"phalanx": "0.1.0"},
    )


def commit_steps(directory: Path, *steps: int) -> list[Committed]:
    return [commit(directory, some_arrays(step), draft(step), None) for step in steps]


def names_in(directory: Path) -> list[str]:
    """Everything in a checkpoint directory but the fence, sorted."""
    return sorted(entry.name for entry in directory.iterdir() if "fence" not in entry.name)


def signed(raw: dict[str, Any]) -> str:
    """The text of a manifest by somebody who computes the checksum right."""
    raw = {key: value for key, value in raw.items() if key != "checksum"}
    canonical = json.dumps(raw, sort_keys=True, separators=(",", ":"))
    return json.dumps({**raw, "checksum": hashlib.sha256(canonical.encode()).hexdigest()})
