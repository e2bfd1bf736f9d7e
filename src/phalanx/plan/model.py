"""The plan: what will happen, as frozen data that crosses from launcher to agent as JSON.

No file of the user is read here and no room below is needed: the agent loads this module without pydantic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PLAN_VERSION = 1


@dataclass(frozen=True)
class Entrypoint:
    """What a worker runs: `kind` "script" (`target` an absolute path) or "function" ("module:function")."""

    kind: str
    target: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerPlan:
    """One TensorFlow process: its rank in the gang, its place on its node, and the environment it gets."""

    rank: int
    local_rank: int
    node: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainPlan:
    """The `train` section. None: the script decides. `precision` is a Keras policy; `xla` compiles steps."""

    steps: int | None = None
    global_batch: int | None = None
    seed: int | None = None
    precision: str = "float32"
    xla: bool = False


@dataclass(frozen=True)
class CheckpointPlan:
    """Where and when checkpoints are committed. `dir` None: `checkpoints` in the run directory."""

    dir: str | None = None
    every_steps: int = 500
    keep: int = 5


@dataclass(frozen=True)
class FailurePlan:
    """When to give up. `max_restarts` rounds after the first; `no_progress_rounds` failed rounds in a row
    without a new step end the job; `grace_s` seconds from SIGTERM to SIGKILL.
    """

    max_restarts: int = 10
    grace_s: float = 30.0
    no_progress_rounds: int = 3


@dataclass(frozen=True)
class LogPlan:
    """Where output goes (`dir` None: `logs` in the run directory) and how much of it a failure shows."""

    dir: str | None = None
    tail_lines: int = 15


@dataclass(frozen=True)
class Plan:
    """What will run. `job_hash` names the job file's meaning; `working_dir` is where workers start."""

    job: str
    job_hash: str
    entrypoint: Entrypoint
    working_dir: str
    workers: tuple[WorkerPlan, ...]
    train: TrainPlan = TrainPlan()
    checkpoint: CheckpointPlan = CheckpointPlan()
    failure: FailurePlan = FailurePlan()
    logs: LogPlan = LogPlan()
    version: int = PLAN_VERSION

    @property
    def world_size(self) -> int:
        """Number of workers in the full gang."""
        return len(self.workers)

    def to_json(self) -> str:
        """The same plan gives the same bytes: keys sorted, two-space indent, newline at the end."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read back what `to_json` wrote. Raises ValueError for another version or a broken file."""
        raw: dict[str, Any] = json.loads(text)
        if raw.get("version") != PLAN_VERSION:
            raise ValueError(f"plan version {raw.get('version')!r}; this Phalanx reads {PLAN_VERSION}")
        entry = raw["entrypoint"]
        return cls(
            job=raw["job"],
            job_hash=raw["job_hash"],
            entrypoint=Entrypoint(entry["kind"], entry["target"], tuple(entry["args"])),
            working_dir=raw["working_dir"],
            workers=tuple(WorkerPlan(**worker) for worker in raw["workers"]),
            train=TrainPlan(**raw["train"]),
            checkpoint=CheckpointPlan(**raw["checkpoint"]),
            failure=FailurePlan(**raw["failure"]),
            logs=LogPlan(**raw["logs"]),
        )
