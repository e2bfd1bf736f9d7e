"""What is known of a run, as frozen data: state, workers, figures. `fold` makes it from events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType


class RunState(str, Enum):
    """What a run is doing, or how it ended."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"  # the agent died without ending the run

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen unless somebody resumes the run."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED, RunState.LOST)


@dataclass(frozen=True)
class RankStatus:
    """One worker of the present round; `step` counts steps done, `section_s` the seconds in its section.

    `loss` and `section_s` are None when unknown, `exit_code` while the worker lives.
    """

    rank: int
    section: str = "setup"
    section_s: float | None = None
    step: int = 0
    loss: float | None = None
    pid: int | None = None
    exit_code: int | None = None
    log: str | None = None


@dataclass(frozen=True)
class FailureStatus:
    """The root cause of the last failed round; `rank` is None when it was no worker's."""

    time: float
    round: int | None
    rank: int | None
    cause: str
    section: str
    step: int | None
    exception: str
    message: str
    hint: str
    details: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line: who, where, what."""
        what = ": ".join(filter(None, (self.exception.rpartition(".")[2], self.message)))
        who = "" if self.rank is None else f"rank {self.rank}: "
        return who + (what.splitlines() or [self.cause])[0]


@dataclass(frozen=True)
class CheckpointStatus:
    """The newest checkpoint that was committed; `time` in Unix seconds."""

    step: int
    path: str
    time: float


@dataclass(frozen=True)
class RunStatus:
    """What is known of a run. Times are Unix seconds, `step` counts steps done, None is "unknown".

    `created` is the start of the run, `started` that of its last start or resume. `examples_per_s` is the
    rate of all ranks together. `failed_at` is when the first worker of the last failed round ended,
    `recovery_s` the time from there to the first step done after it.
    `logs` maps (round, rank) to the file of what that worker printed.
    """

    job: str = ""
    state: RunState = RunState.STARTING
    world_size: int = 0
    round: int = 0
    max_restarts: int | None = None
    restarts_used: int = 0
    ranks: tuple[RankStatus, ...] = ()
    step: int | None = None
    target_steps: int | None = None
    start_step: int = 0
    global_batch: int | None = None
    loss: float | None = None
    examples_per_s: float | None = None
    eta_s: float | None = None
    created: float | None = None
    started: float | None = None
    training_since: float | None = None
    finished: float | None = None
    elapsed_s: float | None = None
    restart_at: float | None = None
    checkpoint: CheckpointStatus | None = None
    failure: FailureStatus | None = None
    failed_at: float | None = None
    recovery_s: float | None = None
    exit_code: int | None = None
    reason: str = ""
    hint: str = ""
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    evaluated_step: int | None = None
    evaluated: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    warnings: int = 0
    logs: Mapping[tuple[int, int], str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def restarts_left(self) -> int | None:
        """Rounds that may still follow a failure; None when the budget is not known."""
        return None if self.max_restarts is None else max(0, self.max_restarts - self.restarts_used)
