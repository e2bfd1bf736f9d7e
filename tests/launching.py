"""Runs the real `phalanx` command, for tests that look at it as a user does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.contract import AGENT_FILE, EVENTS_FILE, exit_code_of
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader
from waiting import wait_for

PHALANX = Path(sys.executable).with_name("phalanx")
PROGRAMS = Path(__file__).parent / "integration" / "programs"
PRETEND = str(PROGRAMS / "pretend_training.py")
LONG = "100000"  # steps that no test waits for


@dataclass
class Ended:
    """What a command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Standard output as JSON of the standard: no NaN."""
        return json.loads(self.stdout, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def phalanx(*args: str, cwd: Path | None = None, timeout_s: float = 60.0) -> Ended:
    """Run one command to its end. Never a traceback, whatever it was given."""
    done = subprocess.run(
        [PHALANX, *args],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )
    assert "Traceback (most recent call last)" not in done.stderr, done.stderr
    return Ended(exit_code_of(done.returncode), done.stdout, done.stderr)


class Run:
    """A `phalanx run` at work, started in its own process group."""

    def __init__(self, *args: str, cwd: Path, **popen: Any) -> None:
        before = set(_run_dirs())
        self._process = subprocess.Popen(
            [PHALANX, "run", *args],
            cwd=cwd,
            start_new_session=True,
            text=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen},
        )
        found = wait_for(lambda: self._new_run(before), 20, "a run directory")
        assert found is not None
        self.run_dir = found
        self.pid = self._process.pid

    def _new_run(self, before: set[Path]) -> Path | None:
        assert self._process.poll() is None, self._process.communicate()
        return next(iter(set(_run_dirs()) - before), None)

    @property
    def id(self) -> str:
        return self.run_dir.name

    def events(self, kind: Kind) -> list[Event]:
        return events_of(self.run_dir, kind)

    def wait_event(self, kind: Kind, count: int = 1, timeout_s: float = 20.0) -> Event:
        """Wait for the `count`-th event of a kind."""
        return wait_for(lambda: self.events(kind)[count - 1 : count], timeout_s, f"{count} {kind}")[0]

    def agent_pid(self) -> int:
        self.wait_event(Kind.RUN_STARTED)
        return int(json.loads((self.run_dir / AGENT_FILE).read_text())["pid"])

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def close_stdout(self) -> None:
        """Stop reading what the command prints."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.stdout = None

    def wait(self, timeout_s: float = 30.0) -> Ended:
        """Wait for the launcher."""
        stdout, stderr = self._process.communicate(timeout=timeout_s)
        return Ended(exit_code_of(self._process.returncode), stdout or "", stderr or "")


def events_of(run_dir: Path, kind: Kind) -> list[Event]:
    """Events of one kind so far."""
    return [event for event in EventReader(run_dir / EVENTS_FILE).read_new() if event.kind is kind]


def _run_dirs() -> list[Path]:
    runs = Path(os.environ["PHALANX_HOME"]) / "runs"
    return [path for path in runs.iterdir() if path.name[0] != "."] if runs.is_dir() else []
