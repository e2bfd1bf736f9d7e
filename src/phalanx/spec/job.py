"""The job: what a user asks for, validated, with every path absolute. Frozen data, no I/O.

The shape of the file is `schema`'s concern; a `JobSpec` is what the file means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class EntrypointSpec:
    """What each worker runs: `kind` "script" (`target` an absolute path) or "function" (`module:name`)."""

    kind: str
    target: str


@dataclass(frozen=True)
class WorkersSpec:
    """The gang: `count` TensorFlow processes; `cpus` cores for each, None to share what there is."""

    count: int = 1
    cpus: int | None = None


@dataclass(frozen=True)
class TrainSpec:
    """How to train. None: the script decides. `precision` is a Keras policy name; `xla` compiles the step."""

    steps: int | None = None
    global_batch: int | None = None
    seed: int | None = None
    precision: str = "float32"
    xla: bool = False


@dataclass(frozen=True)
class CheckpointSpec:
    """Where and when to save. `dir` is absolute; None: in the run directory."""

    dir: str | None = None
    every_steps: int = 500
    keep: int = 5


@dataclass(frozen=True)
class FailureSpec:
    """When to give up. `no_progress_rounds` failed rounds in a row without a new step end the job."""

    max_restarts: int = 10
    grace_s: float = 30.0
    no_progress_rounds: int = 3


@dataclass(frozen=True)
class LogsSpec:
    """Where workers' output goes (`dir` absolute; None: the run directory); lines that a failure shows."""

    dir: str | None = None
    tail_lines: int = 15


@dataclass(frozen=True)
class JobSpec:
    """A job. `working_dir` is where its workers start: the job file's directory, absolute."""

    name: str
    entrypoint: EntrypointSpec
    working_dir: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workers: WorkersSpec = WorkersSpec()
    train: TrainSpec = TrainSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    failure: FailureSpec = FailureSpec()
    logs: LogsSpec = LogsSpec()


@dataclass(frozen=True)
class LoadedJob:
    """A job and where it came from.

    `provenance` maps the path of every value (`train.steps`) to its origin: `job.yaml:12`,
    `--set train.steps=200`, `default`. `source` is the job file, None when there was none; `text` its text.
    """

    spec: JobSpec
    provenance: Mapping[str, str]
    source: Path | None
    text: str
