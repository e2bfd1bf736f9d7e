"""The local backend: one agent on this machine, which starts every worker of the plan.

It owns how an agent process is started and found again. It must not look into what the agent does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from phalanx.backends.base import Observation, ProcessSpec, Submission
from phalanx.contract import AGENT_FILE, AGENT_LOCK, AGENT_LOG, exit_code_of
from phalanx.errors import InfrastructureError, UsageError
from phalanx.plan.model import Plan
from phalanx.plan.worker import worker_argv, worker_env


class LocalAgent:
    """The agent of a local run, as its parent holds it.

    The write end of the agent's standard input stays open as long as this process lives: its end tells the
    agent that the launcher died.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Process number of the agent, which also leads its own session and process group."""
        return self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """Exit code 0..255 once the agent has ended; None when it still runs after `timeout_s`."""
        try:
            returncode = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if self._process.stdin is not None:
            self._process.stdin.close()
        return exit_code_of(returncode)

    def signal(self, signum: int) -> None:
        """Send a signal to the agent; nothing happens when it has ended."""
        self._process.send_signal(signum)


class LocalBackend:
    """Runs a plan as processes of this machine."""

    def render(self, plan: Plan, run_dir: Path) -> Submission:
        """Say what would be started: the agent, and the workers that it starts in each round."""
        agent = ProcessSpec(
            name="agent",
            argv=(sys.executable, "-m", "phalanx.agent", "--launcher-pipe", str(run_dir)),
            env={},
            # Not the working directory: `-m` puts it on the path, where a user's `json.py` breaks the agent.
            cwd=str(run_dir),
        )
        addresses = tuple(f"127.0.0.1:<port of rank {worker.rank}>" for worker in plan.workers)
        workers = tuple(
            ProcessSpec(
                name=f"rank-{worker.rank}",
                argv=worker_argv(plan, sys.executable),
                env=worker_env(plan, run_dir, 1, worker, addresses, "<fence of the round>", {}),
                cwd=plan.working_dir,
            )
            for worker in plan.workers
        )
        return Submission("local", str(run_dir), (agent,), workers)

    def submit(self, submission: Submission) -> LocalAgent:
        """Start the agent in its own session; what it prints goes to `agent.log` in the run directory.

        Raises InfrastructureError when it cannot be started.
        """
        (agent,) = submission.agents
        log = Path(submission.run_dir) / AGENT_LOG
        try:
            with log.open("ab") as output:
                process = subprocess.Popen(
                    agent.argv,
                    env={**os.environ, **agent.env},
                    cwd=agent.cwd,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise InfrastructureError(
                f"the agent of {submission.run_dir} cannot be started: {error}",
                "the run directory must exist and be writable",
            ) from error
        return LocalAgent(process)

    def observe(self, run_dir: Path) -> Observation:
        """Say whether the agent of a run lives: it holds a lock on a file of the run directory."""
        said = _agent_file(run_dir)
        alive = _lock_is_held(run_dir / AGENT_LOCK)
        return Observation(alive, said.get("pid"), said.get("host"), said.get("started"))

    def cancel(self, run_dir: Path, signum: int = signal.SIGTERM) -> bool:
        """Signal the agent of a run; False when no agent is alive.

        Raises UsageError when it runs on another host, whose process numbers mean something else here.
        """
        seen = self.observe(run_dir)
        if not seen.alive or seen.pid is None:
            return False
        if seen.host != socket.gethostname():
            raise UsageError(f"{run_dir.name} runs on the host {seen.host}", "give the command there")
        with contextlib.suppress(ProcessLookupError):  # it ended between the look and the signal
            os.kill(seen.pid, signum)
            return True
        return False


def _agent_file(run_dir: Path) -> dict[str, Any]:
    """What the last agent of the run said of itself; empty when it said nothing readable."""
    try:
        said = json.loads((run_dir / AGENT_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _lock_is_held(path: Path) -> bool:
    """Whether another process holds the lock; looking takes it shared for a moment."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
