"""The guardian: a small process that outlives a killed agent just long enough to kill what it left.

Workers die with the agent by PR_SET_PDEATHSIG, but what they started does not. The agent tells the guardian
the process groups over a pipe; when the pipe closes, the guardian kills those that are left, and orphans.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from phalanx.agent.orphans import kill_orphans


class Guardian:
    """The agent's end. A guardian that was itself killed is replaced when the next worker starts."""

    def __init__(self, run_dir: Path) -> None:
        """Start the process. Raises OSError."""
        self._run_dir = run_dir
        self._groups: set[int] = set()
        self._process = self._spawn()

    def watch(self, group: int) -> None:
        """Kill this process group when the agent dies."""
        self._groups.add(group)
        if self._process.poll() is None:
            self._tell(f"+{group}\n")
            return
        self._process = self._spawn()
        self._tell("".join(f"+{known}\n" for known in sorted(self._groups)))

    def forget(self, group: int) -> None:
        """This process group is gone; its number may be used again."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Let the guardian end; it kills the groups that were not forgotten."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "phalanx.agent.guardian", str(self._run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=self._run_dir,
            start_new_session=True,
        )

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead: `watch` starts another
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()


def guard(commands: BinaryIO, run_dir: Path) -> None:
    """Follow the agent's commands to their end, then kill the groups that remain."""
    groups: set[int] = set()
    for line in commands:
        group = int(line[1:])
        if line.startswith(b"+"):
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    if groups:
        kill_orphans(run_dir)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    guard(sys.stdin.buffer, Path(sys.argv[1]))
