"""Following one run from outside: its events, boards and liveness, folded into a status. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phalanx.backends.local import LocalBackend
from phalanx.cli.runs import job_of, read_plan
from phalanx.contract import EVENTS_FILE, PLAN_FILE, board_file
from phalanx.errors import InfrastructureError, UsageError
from phalanx.events.board import BoardReading, read_board
from phalanx.events.fold import advance, observe
from phalanx.events.kinds import Event
from phalanx.events.log import EventReader
from phalanx.events.status import RunState, RunStatus
from phalanx.plan.model import Plan
from phalanx.plan.worker import checkpoint_dir

# Between the making of a run directory and the agent's first words.
_AGENT_START_S = 10.0


@dataclass(frozen=True)
class Look:
    """What one look at a run showed: its status, whether its agent lives, the events since the last look."""

    status: RunStatus
    agent_alive: bool
    events: tuple[Event, ...]


class RunWatch:
    """Looks at one run again and again; each look reads only the events that are new.

    `agent_alive` tells whether the agent lives; by default its lock is asked. A plan that cannot be read is
    no obstacle: `plan` is None then and `problems` says so.
    """

    def __init__(self, run_dir: Path, agent_alive: Callable[[], bool] | None = None) -> None:
        self.run_dir = run_dir
        self.plan: Plan | None = None
        self._plan_problem = ""
        try:
            self.plan = read_plan(run_dir)
        except UsageError as error:
            self._plan_problem = error.message
        self._alive = agent_alive or (lambda: LocalBackend().observe(run_dir).alive)
        self._reader = EventReader(run_dir / EVENTS_FILE)
        self._folded = _initial(run_dir, self.plan)

    @property
    def problems(self) -> tuple[str, ...]:
        """What of the run's own files could not be read, a sentence each."""
        found = [self._plan_problem] if self._plan_problem else []
        if self._reader.skipped:
            found.append(
                f"{self._reader.skipped} lines of {self._reader.path} cannot be read and are left out"
            )
        return tuple(found)

    @property
    def checkpoint_dir(self) -> Path | None:
        """Where the run's checkpoints are; None when its plan cannot be read."""
        return checkpoint_dir(self.plan, self.run_dir) if self.plan else None

    def look(self) -> Look:
        """Read what is new. Raises InfrastructureError when the run directory cannot be read."""
        try:
            # Before the events: an agent that ends in between has then written its last ones.
            alive = self._alive()
            events = tuple(self._reader.read_new())
            for event in events:
                self._folded = advance(self._folded, event)
            status = observe(
                self._folded,
                self._boards(),
                agent_alive=alive or self._may_be_starting(),
                now=time.time(),
                monotonic_s=time.monotonic(),
            )
        except OSError as error:
            raise InfrastructureError(
                f"{error.filename or self.run_dir} cannot be read: {error.strerror}"
            ) from error
        return Look(status, alive, events)

    def _boards(self) -> dict[int, BoardReading]:
        if self._folded.state.is_final and self._folded.state is not RunState.LOST:
            return {}
        found = {}
        for rank in self._folded.ranks:
            try:
                board = read_board(board_file(self.run_dir, self._folded.round, rank.rank))
            except OSError:  # the events, already read, tell the more important part
                continue
            if board is not None:
                found[rank.rank] = board
        return found

    def _may_be_starting(self) -> bool:
        """Whether the run is so young that its agent may not have spoken yet."""
        if self._folded.created is not None:
            return False
        try:
            return time.time() - (self.run_dir / PLAN_FILE).stat().st_mtime < _AGENT_START_S
        except FileNotFoundError:
            return False


def _initial(run_dir: Path, plan: Plan | None) -> RunStatus:
    """What is known of a run before its first event."""
    if plan is None:
        return RunStatus(job=job_of(run_dir.name))
    return RunStatus(
        job=plan.job,
        world_size=plan.world_size,
        max_restarts=plan.failure.max_restarts,
        target_steps=plan.train.steps,
    )
