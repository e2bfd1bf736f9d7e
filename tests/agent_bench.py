"""Runs `python -m phalanx.agent` on a small script, for tests that need real processes and no launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.contract import EVENTS_FILE, PLAN_FILE, exit_code_of, log_file
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader
from phalanx.plan.model import CheckpointPlan, Entrypoint, FailurePlan, LogPlan, Plan, WorkerPlan
from waiting import wait_for

# What the scripts of the tests begin with: who they are, and a way to wait for the end.
PRELUDE = """\
import json, os, pathlib, signal, sys, threading
from phalanx.contract import WorkerEnv, board_file
ENV = WorkerEnv.from_env(os.environ)
RANK, ROUND = ENV.rank, ENV.round
def wait_for_the_end():
    threading.Event().wait(60)
def touch(name):
    (pathlib.Path(ENV.run_dir) / f"{name}-{ROUND}-{RANK}").touch()
def wait_until(name, round_number, rank):
    path = pathlib.Path(ENV.run_dir) / f"{name}-{round_number}-{rank}"
    while not path.exists():
        threading.Event().wait(0.01)
"""


def make_run(
    tmp_path: Path,
    script: str,
    *,
    workers: int = 2,
    args: tuple[str, ...] = (),
    checkpoint_dir: Path | None = None,
    log_dir: Path | None = None,
    name: str = "run",
    prelude: str = PRELUDE,
    **failure: Any,
) -> Path:
    """A run directory with a plan for `script` (its text; `prelude` comes before it)."""
    run_dir = tmp_path / name
    run_dir.mkdir()
    path = tmp_path / f"{name}.py"
    path.write_text(prelude + script)
    plan = Plan(
        job="test",
        job_hash="0",
        entrypoint=Entrypoint("script", str(path), args),
        working_dir=str(tmp_path),
        workers=tuple(WorkerPlan(rank, rank, "localhost") for rank in range(workers)),
        checkpoint=CheckpointPlan(dir=str(checkpoint_dir) if checkpoint_dir else None),
        failure=FailurePlan(**{"grace_s": 10.0, **failure}),
        logs=LogPlan(dir=str(log_dir) if log_dir else None),
    )
    (run_dir / PLAN_FILE).write_text(plan.to_json())
    return run_dir


@dataclass
class AgentRun:
    """An agent at work."""

    run_dir: Path
    process: subprocess.Popen[str]

    def events(self, kind: Kind) -> list[Event]:
        """Events of one kind so far."""
        return [one for one in EventReader(self.run_dir / EVENTS_FILE).read_new() if one.kind is kind]

    def wait_event(self, kind: Kind, count: int = 1, timeout_s: float = 20.0) -> Event:
        """Wait for the `count`-th event of a kind."""
        wait_for(lambda: len(self.events(kind)) >= count, timeout_s, f"{count} {kind}")
        return self.events(kind)[count - 1]

    def wait_file(self, name: str, round_number: int, rank: int) -> None:
        """Wait until a script has called `touch(name)`."""
        path = self.run_dir / f"{name}-{round_number}-{rank}"
        wait_for(path.exists, 20.0, f"{path.name}; {self.log(round_number, rank)}")

    def pid(self, round_number: int, rank: int) -> int:
        """Process number of a worker."""

        def find() -> list[int]:
            started = self.events(Kind.WORKER_STARTED)
            return [int(one.data["pid"]) for one in started if (one.round, one.rank) == (round_number, rank)]

        return wait_for(find, 20.0, f"rank {rank} of round {round_number}")[0]

    def log(self, round_number: int, rank: int) -> str:
        """What a worker printed so far."""
        path = log_file(self.run_dir, round_number, rank)
        return path.read_text() if path.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Signal the agent."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 30.0) -> int:
        """The agent's exit code."""
        _, self.stderr = self.process.communicate(timeout=timeout_s)
        return exit_code_of(self.process.returncode)

    stderr: str = ""

    def finished(self) -> dict[str, Any]:
        """Data of the one `run_finished`."""
        (event,) = self.events(Kind.RUN_FINISHED)
        return event.data


def start_agent(run_dir: Path, *, launcher_pipe: bool = False) -> AgentRun:
    """Start the agent of a run; with `launcher_pipe` its standard input is a pipe that this process holds."""
    flags = ["--launcher-pipe"] if launcher_pipe else []
    process = subprocess.Popen(
        [sys.executable, "-m", "phalanx.agent", *flags, str(run_dir)],
        stdin=subprocess.PIPE if launcher_pipe else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return AgentRun(run_dir, process)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return "\nState:\tZ" not in status and os.path.exists(f"/proc/{pid}")
