"""The worker processes of one round: start, look, signal, bury. No decisions.

A worker that ended stays a zombie until `release`: so the number of its process group cannot be used again
before what it left behind is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from phalanx.contract import AGENT_PID_ENV, WorkerEnv

_TAIL_BYTES = 32 * 1024


@dataclass(frozen=True)
class Ended:
    """A worker that was seen to end; `exit_code` as a shell would say it, 0..255."""

    rank: int
    exit_code: int


class Gang:
    """The workers that this agent started in one round."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()

    def start(self, rank: int, argv: Sequence[str], env: Mapping[str, str], cwd: str, log: Path) -> int:
        """Start one worker as the leader of its own session and process group and return its pid.

        The worker asks the kernel itself to die with the agent (see `train/bootstrap.py`): code between
        fork and exec would not be safe. Raises OSError.
        """
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(WorkerEnv.PREFIX)
        }
        with log.open("ab") as output:
            process = subprocess.Popen(
                argv,
                env={**inherited, **env, AGENT_PID_ENV: str(os.getpid())},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes[rank] = process
        return process.pid

    def alive(self) -> tuple[int, ...]:
        """Ranks that have not been seen to end."""
        return tuple(rank for rank in self._processes if rank not in self._ended)

    def newly_ended(self) -> Iterable[Ended]:
        """Each worker that ended since the last call, once."""
        for rank in self.alive():
            seen = os.waitid(os.P_PID, self._processes[rank].pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if seen is None:
                continue
            self._ended.add(rank)
            by_exit = seen.si_code == os.CLD_EXITED
            yield Ended(rank, seen.si_status if by_exit else 128 + seen.si_status)

    def terminate(self) -> None:
        """SIGTERM to every living worker; not to what it started, which it may need to save its work."""
        for rank in self.alive():
            os.kill(self._processes[rank].pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process group."""
        for process in self._processes.values():
            # PermissionError: all that is left in the group belongs to another user.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def release(self) -> tuple[int, ...]:
        """Kill what is left in the groups, bury the workers that ended, and return their process groups."""
        self.kill()
        buried = []
        for rank in sorted(self._ended):
            process = self._processes.pop(rank)
            process.wait()  # it is a zombie: this does not wait
            buried.append(process.pid)
        self._ended.clear()
        return tuple(buried)


def log_tail(path: Path, lines: int) -> tuple[str, ...]:
    """The last lines of a log that carry text; () when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple([line.rstrip() for line in text.splitlines() if line.strip()][-lines:]) if lines else ()
