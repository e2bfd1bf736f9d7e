"""Saves on a tmpfs of one megabyte until it is full, then read-only: small_disk.py MOUNT_POINT."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from checkpoint_samples import commit_steps, draft, names_in
from phalanx.checkpoint import fence
from phalanx.checkpoint.commit import commit
from phalanx.checkpoint.store import Corrupt, newest_valid
from phalanx.errors import CheckpointError

disk = Path(sys.argv[1])


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments, str(disk)], check=True)


def refused(function: Callable[..., Any], *arguments: Any) -> None:
    try:
        function(*arguments)
    except CheckpointError as error:
        print(str(error).replace("\n", " | "))
    else:
        sys.exit("not refused")


def restore() -> None:
    bad: list[Corrupt] = []
    found = newest_valid(directory, bad.append)
    assert found is not None
    print(found.step, bad[0].moved_to and bad[0].moved_to.name, bad[0].message)


mount("-t", "tmpfs", "-o", "size=1m", "small")
directory = disk / "checkpoints"
token = fence.take(directory, disk / "run", 1)
commit_steps(directory, 1, 2)
refused(commit, directory, {"w": np.zeros(2 << 20, np.uint8)}, draft(3), token)
print(names_in(directory))
commit_steps(directory, 4)
os.truncate(directory / "step-000000004" / "state.safetensors", 9)
mount("-o", "remount,ro")
refused(commit, directory, {"w": np.zeros(8)}, draft(5), token)
refused(fence.take, directory, disk / "run", 2)
restore()
mount("-o", "remount,rw")
restore()
