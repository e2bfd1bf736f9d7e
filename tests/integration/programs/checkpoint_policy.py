"""Saves through a disk that refuses at times, and restores past damage: checkpoint_policy.py DIR.

Prints one line of JSON with what happened; the events are in DIR/events.jsonl.
"""

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

from phalanx.checkpoint import fence, payload
from phalanx.errors import CheckpointError, FencedError
from phalanx.events.log import EventLog
from phalanx.train import checkpointing

directory = Path(sys.argv[1]) / "checkpoints"
events = EventLog(Path(sys.argv[1]) / "events.jsonl")
told: dict[str, Any] = {}


def model(fill: float) -> Any:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    made.set_weights([np.full((2, 1), fill), np.zeros(1)])
    return made


def checkpoints(rank: int, token: str | None) -> checkpointing.Checkpoints:
    return checkpointing.Checkpoints(
        directory,
        keep=2,
        rank=rank,
        round_number=1,
        world_size=2,
        fence=token,
        job="j",
        job_hash="h",
        seed=7,
        events=events,
    )


class FullDisk:
    """Refuses the next `times` saves."""

    def __init__(self, times: int) -> None:
        self.times = times
        self._real = payload.write

    def __enter__(self) -> None:
        payload.write = self._write

    def __exit__(self, *_: object) -> None:
        payload.write = self._real

    def _write(self, file: Any, arrays: Any) -> tuple[int, str]:
        self.times -= 1
        if self.times >= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._real(file, arrays)


def name(path: Path | None) -> str | None:
    return path.name if path else None


checkpointing.FINAL_PAUSE_S = 0.01
token = fence.take(directory, Path(sys.argv[1]), 1)
(directory / ".tmp-0-dead").mkdir()
saver, other = checkpoints(0, token), checkpoints(1, token)
one, two = model(1.0), model(2.0)
told["nothing to restore"] = [saver.restore(one), other.restore(two)]
told["leftovers"] = (directory / ".tmp-0-dead").exists()
told["other ranks"] = name(other.save(two, 10, {}))
told["first"] = name(saver.save(one, 10, {"next": 10}))
told["second"] = name(saver.save(one, 27, {"next": 27}))
with FullDisk(1):
    told["full"] = name(saver.save(one, 30, {}))
told["next"] = name(saver.save(one, 40, {"next": 40}))
told["kept"] = sorted(path.name for path in directory.glob("step-*"))
told["same step again"] = name(saver.save(one, 40, {}, final=True))
with FullDisk(2):
    told["final, third attempt"] = name(saver.save(one, 41, {"next": 41}, final=True))
with FullDisk(99):
    try:
        saver.save(one, 42, {}, final=True)
    except CheckpointError as error:
        told["final refused"] = error.message

with (directory / "step-000000041" / "state.safetensors").open("r+b") as file:
    file.seek(-1, os.SEEK_END)
    file.write(b"\xff")
for rank, target in ((0, two), (1, model(3.0))):
    restored = checkpoints(rank, token).restore(target)
    assert restored is not None
    told[f"restored by {rank}"] = [
        restored.step,
        dict(restored.data_position),
        float(target.get_weights()[0][0, 0]),
    ]

fence.take(directory, Path(sys.argv[1]), 2)
try:
    saver.save(one, 50, {})
except FencedError as error:
    told["fenced"] = type(error).__name__
print(json.dumps(told))
