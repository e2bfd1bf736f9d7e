"""Finding what workers left behind: a process that moved to another session still carries its environment.

One that was started with an empty environment and left its group cannot be found without control groups.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from phalanx.contract import WorkerEnv

_PASSES = 5  # a process may fork between the look and the kill; each pass finds what the last one missed


def kill_orphans(run_dir: Path) -> int:
    """SIGKILL every process that a worker of this run started, at any depth; return how many there were."""
    mark = f"{WorkerEnv.PREFIX}RUN_DIR={json.dumps(str(run_dir))}".encode()
    killed: set[int] = set()
    for _ in range(_PASSES):
        found = [pid for pid in _marked(mark) if pid not in killed]
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    return len(killed)


def _marked(mark: bytes) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        # Gone by now, or of another user: not ours. The environment of a zombie is empty.
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                found.append(int(name))
    return found
