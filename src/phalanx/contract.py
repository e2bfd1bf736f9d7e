"""What two processes agree on: exit codes, environment names, file names; no I/O but the error file.

Launcher, agent and worker share no memory and may run different images; this file is their treaty.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes of a worker, of the agent and of `phalanx` (docs/exit-codes.md is made from this table)."""

    SUCCESS = 0, "the work is done"
    USER_ERROR = 1, "an exception in the user's code (the first rank that failed)"
    USAGE = 2, "the command line or the job file is wrong; nothing was started"
    PEER_LOST = 80, "collateral: another rank went away first"
    STUCK = 81, "a rank was alive and made no progress"
    PREEMPTED = 82, "a worker was asked to stop, saved a checkpoint and left"
    CHECKPOINT = 83, "a checkpoint could not be written or read"
    INFRASTRUCTURE = 84, "the machine failed: no port, no process, the agent died"
    NO_RESTART = 93, "wrong in a way that no restart can mend, or a program asked for no restart"
    INTERRUPTED = 130, "stopped by Ctrl-C (SIGINT)"
    ABORTED = 134, "SIGABRT: a native library gave up"
    KILLED = 137, "SIGKILL: killed by hand, by the kernel for memory, or by a scheduler"
    SEGFAULT = 139, "SIGSEGV: a native library crashed"
    TERMINATED = 143, "stopped by SIGTERM or `phalanx cancel`"

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """Attach the meaning to the number, so that the table exists once."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


def exit_code_of(returncode: int) -> int:
    """Map the return code of a child (negative: died by that signal) to a shell exit code, 0..255."""
    return 128 - returncode if returncode < 0 else returncode


# Sections a worker can be in, in the order of the numbers on the board. Never renumber.
# "join": within phalanx.train.init(), until all ranks are there.
SECTIONS = ("setup", "compile", "input", "step", "checkpoint", "evaluate", "done", "join")

# Names inside a run directory.
PLAN_FILE = "plan.json"
EVENTS_FILE = "events.jsonl"
AGENT_FILE = "agent.json"  # {"pid": int, "host": str, "started": unix seconds}
AGENT_LOCK = "agent.lock"  # held with flock as long as the agent lives
AGENT_LOG = "agent.log"  # what the agent itself printed
LOG_DIR = "logs"
BOARD_DIR = "boards"
ERROR_DIR = "errors"
CHECKPOINT_DIR = "checkpoints"

AGENT_PID_ENV = "PHALANX_AGENT_PID"  # a worker whose parent is another process by now was orphaned: it leaves
HOME_ENV = "PHALANX_HOME"  # default ~/.phalanx; runs live in $PHALANX_HOME/runs


def log_file(run_dir: Path, round_number: int, rank: int) -> Path:
    """Where everything that `rank` printed in that round goes, when the job file names no other directory."""
    return run_dir / LOG_DIR / f"round-{round_number:04d}" / f"rank-{rank}.log"


def board_file(run_dir: Path, round_number: int, rank: int) -> Path:
    """Where `rank` notes its progress in that round."""
    return run_dir / BOARD_DIR / f"round-{round_number:04d}" / f"rank-{rank}.board"


def error_file(run_dir: Path, round_number: int, rank: int) -> Path:
    """Where `rank` says why it failed in that round."""
    return run_dir / ERROR_DIR / f"round-{round_number:04d}" / f"rank-{rank}.json"


@dataclass(frozen=True)
class WorkerEnv:
    """What the agent tells a worker through the environment, besides TF_CONFIG.

    Unset numbers are None: the job file said nothing, the script decides.
    """

    run_dir: str
    job: str
    job_hash: str
    round: int
    rank: int
    world_size: int
    local_rank: int
    fence: str
    checkpoint_dir: str
    checkpoint_every_steps: int
    checkpoint_keep: int
    grace_s: float
    steps: int | None = None
    global_batch: int | None = None
    seed: int | None = None
    precision: str = "float32"
    xla: bool = False

    PREFIX = "PHALANX_WORKER_"

    def to_env(self) -> dict[str, str]:
        """One variable a field, named PHALANX_WORKER_<FIELD>; values are JSON, None is left out."""
        return {
            f"{self.PREFIX}{name.upper()}": json.dumps(value)
            for name, value in asdict(self).items()
            if value is not None
        }

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> WorkerEnv | None:
        """Read back what `to_env` wrote; None when no agent started this process.

        Raises KeyError or ValueError when the variables are there but broken: agent and worker
        then run different versions of Phalanx.
        """
        prefix = cls.PREFIX
        if f"{prefix}RUN_DIR" not in environ:
            return None
        values = {}
        for field in fields(cls):
            name = prefix + field.name.upper()
            if name in environ:
                values[field.name] = json.loads(environ[name])
            elif field.default is MISSING:
                raise KeyError(f"{name} is missing from the worker's environment")
        return cls(**values)


@dataclass(frozen=True)
class ErrorReport:
    """Why a worker failed, as it wrote it down itself before it left.

    `time` is Unix seconds, `exception` the qualified class name, `traceback` the last lines of it.
    """

    rank: int
    round: int
    time: float
    exit_code: int
    section: str
    step: int
    exception: str
    message: str
    hint: str
    traceback: tuple[str, ...]

    def write(self, path: Path) -> None:
        """Write to `path` by rename, so that a reader never sees half of it. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".part-{os.getpid()}")
        part.write_text(json.dumps(asdict(self)))
        part.replace(path)

    @classmethod
    def read(cls, path: Path) -> ErrorReport | None:
        """Read what `write` wrote; None when the worker left nothing."""
        try:
            raw = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(**{**raw, "traceback": tuple(raw["traceback"])})
