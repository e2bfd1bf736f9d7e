"""When a run saves, what it does when the disk refuses, and what it tells."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader

PROGRAM = Path(__file__).parent / "programs" / "checkpoint_policy.py"


@pytest.mark.tensorflow
def test_saving_and_restoring_through_trouble(tmp_path: Path) -> None:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    program = [sys.executable, str(PROGRAM), str(tmp_path)]
    found = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120, env=environ)
    assert found.returncode == 0, found.stderr[-3000:]
    told = json.loads(found.stdout.splitlines()[-1])
    assert "No space left on device" in told.pop("final refused")
    assert told == {
        "nothing to restore": [None, None],
        "leftovers": False,
        "other ranks": None,
        "first": "step-000000010",
        "second": "step-000000027",
        "full": None,
        "next": "step-000000040",
        "kept": ["step-000000027", "step-000000040"],
        "same step again": "step-000000040",
        "final, third attempt": "step-000000041",
        "restored by 0": [40, {"next": 40}, 1.0],
        "restored by 1": [40, {"next": 40}, 1.0],
        "fenced": "FencedError",
    }
    assert "checkpoint of step 30 not saved" in found.stderr
    assert "step-000000041: state.safetensors is damaged" in found.stderr

    events = list(EventReader(tmp_path / "events.jsonl").read_new())
    assert all(event.round == 1 for event in events)
    assert steps(events, Kind.CHECKPOINT_COMMITTED) == [10, 27, 40, 41]
    assert steps(events, Kind.CHECKPOINT_FAILED) == [30, 41, 41, 42, 42, 42]
    assert steps(events, Kind.CHECKPOINT_RESTORED) == [40]
    (corrupt,) = [event for event in events if event.kind == Kind.CHECKPOINT_CORRUPT]
    assert corrupt.data["path"].endswith("step-000000041")
    assert "corrupt-step-000000041-" in corrupt.data["moved_to"]
    assert "do not match their checksum" in corrupt.data["message"]
    committed = next(event for event in events if event.kind == Kind.CHECKPOINT_COMMITTED)
    assert committed.rank == 0
    assert committed.data["bytes"] > 0
    assert committed.data.keys() == {"step", "path", "bytes", "seconds"}


def steps(events: list[Event], kind: Kind) -> list[int]:
    return [event.data["step"] for event in events if event.kind == kind]
