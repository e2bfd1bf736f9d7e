"""The seam between a plan and whatever runs it: render (pure), submit, observe, cancel.

A backend turns a plan into running agents and says what it sees. It never decides a restart: the agent does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from phalanx.plan.model import Plan


@dataclass(frozen=True)
class ProcessSpec:
    """One process as it would be started: `env` is what is added to the environment of the parent."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


@dataclass(frozen=True)
class Submission:
    """What a backend would send. `agents` are started by the backend, `workers` by the agents, in each round.

    What is only known when a round forms (ports, fence) stands in `workers` as a word in angle brackets.
    """

    backend: str
    run_dir: str
    agents: tuple[ProcessSpec, ...]
    workers: tuple[ProcessSpec, ...]


@dataclass(frozen=True)
class Observation:
    """What a backend sees of a run: whether its agent is alive, and as which process on which host.

    `pid`, `host` and `started` (Unix seconds) are None when the agent never said so.
    """

    alive: bool
    pid: int | None
    host: str | None
    started: float | None


class RunningAgent(Protocol):
    """An agent that this process has submitted."""

    @property
    def pid(self) -> int:
        """Process number of the agent."""

    def wait(self, timeout_s: float) -> int | None:
        """Exit code 0..255 once the agent has ended; None when it still runs after `timeout_s`."""

    def signal(self, signum: int) -> None:
        """Send a signal to the agent: the first SIGINT or SIGTERM stops gracefully, the second at once."""


class Backend(Protocol):
    """Turns a plan into running agents. The directory of the run is the name of the run."""

    def render(self, plan: Plan, run_dir: Path) -> Submission:
        """Say what would be started. Pure: no I/O, the same input gives the same output."""

    def submit(self, submission: Submission) -> RunningAgent:
        """Start the agents. Raises InfrastructureError when that is impossible."""

    def observe(self, run_dir: Path) -> Observation:
        """Look at a run from any process, also one that was not submitted here."""

    def cancel(self, run_dir: Path, signum: int) -> bool:
        """Signal the agent of a run from any process; False when no agent is alive. Raises UsageError."""
