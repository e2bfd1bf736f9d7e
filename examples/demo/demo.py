"""The demo: train on two workers, kill one with SIGKILL, watch training go on, and check all that is claimed.

    make demo
    python examples/demo/demo.py [options of `phalanx run`, such as --plain]

Runs `phalanx run examples/credit_risk/job.yaml` as a person would, and reads the run's event log to know when
to kill and what happened. Exit code 0 only when everything was as claimed.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.contract import EVENTS_FILE, HOME_ENV
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader

JOB = Path(__file__).resolve().parent.parent / "credit_risk" / "job.yaml"
PHALANX = Path(sysconfig.get_path("scripts")) / "phalanx"
VICTIM = 1
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # TensorFlow's remarks about the processor
PREPARE_TIMEOUT_S = 600
START_TIMEOUT_S = 60
KILL_TIMEOUT_S = 300
RUN_TIMEOUT_S = 900
STOP_TIMEOUT_S = 60


@dataclass
class Watched:
    """A run seen through its event log."""

    events: list[Event]
    reader: EventReader = field(repr=False)

    def look(self) -> list[Event]:
        """All events so far."""
        self.events.extend(self.reader.read_new())
        return self.events

    def of(self, kind: Kind, round_number: int | None = None) -> list[Event]:
        """The events of one kind, of all rounds or of one."""
        return [e for e in self.look() if e.kind is kind and round_number in (None, e.round)]


def run_directories() -> set[Path]:
    """The runs of this job so far."""
    home = Path(os.environ.get(HOME_ENV) or Path.home() / ".phalanx")
    return set((home / "runs").glob("credit-risk-*"))


def until(process: subprocess.Popen[bytes], ready: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `ready` says yes. Raises RuntimeError when the run ends or the time is over first."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {timeout_s:.0f} s: {what}")
        pause.wait(0.05)


def kill_step(watched: Watched) -> int:
    """The step to wait for, a third of the way: there is something to lose and something left to do."""
    return int(watched.of(Kind.TRAINING_STARTED)[0].data["steps"]) // 3


def ready_to_kill(watched: Watched) -> bool:
    """Whether a checkpoint is committed and the run is a third done."""
    if not watched.of(Kind.TRAINING_STARTED) or not watched.of(Kind.CHECKPOINT_COMMITTED):
        return False
    return any(event.data["step"] >= kill_step(watched) for event in watched.of(Kind.PROGRESS))


def kill_one(watched: Watched) -> float:
    """SIGKILL the victim of the first round; returns the time, Unix seconds."""
    pid = next(e.data["pid"] for e in watched.of(Kind.WORKER_STARTED, 1) if e.rank == VICTIM)
    step = watched.of(Kind.PROGRESS)[-1].data["step"]
    print(f"\ndemo: kill -9 {pid}, the worker of rank {VICTIM}, after step {step}\n", flush=True)
    moment = time.time()
    os.kill(pid, signal.SIGKILL)
    return moment


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a run that is still going, first politely; its agent and workers go with it."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            continue


def prepare() -> None:
    """Make the training arrays, as a person would ahead of a run. Raises RuntimeError."""
    command = [sys.executable, "-m", "phalanx.workloads.credit_risk.prepare"]
    done = subprocess.run(command, check=False, timeout=PREPARE_TIMEOUT_S, env={**os.environ, **QUIET})
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} left with exit code {done.returncode}")


def train_with_a_kill() -> tuple[Watched, Path, float, int]:
    """Run the job and kill one worker on the way: events, run directory, moment of the kill, exit code."""
    before = run_directories()
    process = subprocess.Popen([PHALANX, "run", str(JOB), *sys.argv[1:]])
    try:
        until(process, lambda: run_directories() - before, START_TIMEOUT_S, "a run directory was made")
        run_dir = min(run_directories() - before)
        watched = Watched([], EventReader(run_dir / EVENTS_FILE))
        until(
            process, lambda: ready_to_kill(watched), KILL_TIMEOUT_S, "a checkpoint and a third of the steps"
        )
        killed_at = kill_one(watched)
        code = process.wait(RUN_TIMEOUT_S)
    except KeyboardInterrupt:
        process.wait(STOP_TIMEOUT_S)  # Ctrl-C reached the run as well: it saves and leaves
        raise
    finally:
        stop(process)
    return watched, run_dir, killed_at, code


@dataclass(frozen=True)
class Outcome:
    """What the table shows. Steps are global; times are seconds."""

    auc: float
    average_precision: float
    steps: int
    steps_per_s: float
    rounds: int
    resumed_from: int
    recovery_s: float
    state: str


def outcome_of(watched: Watched, killed_at: float) -> Outcome:
    """Read the outcome from the events."""
    evaluated = watched.of(Kind.EVALUATED)
    figures = evaluated[-1].data["metrics"] if evaluated else {}
    resumed = [event for event in watched.of(Kind.STEP_RESUMED) if event.time > killed_at]
    restored = watched.of(Kind.CHECKPOINT_RESTORED)
    finished = watched.of(Kind.RUN_FINISHED)
    done = watched.of(Kind.TRAINING_FINISHED)
    rates = sorted(
        e.data["examples_per_s"] for e in watched.of(Kind.PROGRESS) if e.data.get("examples_per_s")
    )
    batch = watched.of(Kind.TRAINING_STARTED)[0].data["global_batch"]
    return Outcome(
        auc=figures.get("auc", math.nan),
        average_precision=figures.get("average_precision", math.nan),
        steps=done[-1].data["step"] if done else 0,
        steps_per_s=rates[len(rates) // 2] / batch if rates else math.nan,
        rounds=len(watched.of(Kind.ROUND_STARTED)),
        resumed_from=restored[-1].data["step"] if restored else 0,
        recovery_s=resumed[0].time - killed_at if resumed else math.nan,
        state=finished[-1].data["state"] if finished else "not finished",
    )


def disappointments(outcome: Outcome, exit_code: int) -> list[str]:
    """What is not as claimed; empty when all is well."""
    claims = {
        f"the run succeeded (it {outcome.state}, exit code {exit_code})": outcome.state == "succeeded"
        and exit_code == 0,
        f"there were two rounds ({outcome.rounds})": outcome.rounds == 2,
        f"training went on from a committed step ({outcome.resumed_from})": outcome.resumed_from > 0,
        "a step was done after the kill": math.isfinite(outcome.recovery_s),
        f"AUC is above chance ({outcome.auc:.4f})": math.isfinite(outcome.auc) and outcome.auc > 0.5,
    }
    return [claim for claim, holds in claims.items() if not holds]


def checkpoints_of(watched: Watched) -> Path | None:
    """The directory of the committed checkpoints."""
    committed = watched.of(Kind.CHECKPOINT_COMMITTED)
    return Path(committed[-1].data["path"]).parent if committed else None


def table(outcome: Outcome, watched: Watched, run_dir: Path) -> str:
    """The result as lines."""
    rows = {
        "AUC, validation": f"{outcome.auc:.4f}",
        "average precision": f"{outcome.average_precision:.4f}",
        "steps": f"{outcome.steps}",
        "steps/s": f"{outcome.steps_per_s:.1f}",
        "rounds": f"{outcome.rounds}",
        "resumed from step": f"{outcome.resumed_from}",
        "kill to first resumed step": f"{outcome.recovery_s:.1f} s",
        "checkpoints": f"{checkpoints_of(watched)}",
        "next": f"{PHALANX} status {run_dir.name}",
    }
    return "\n".join(["", "demo", *(f"  {name:<27} {value}" for name, value in rows.items())])


def main() -> int:
    """Prepare, run, kill, wait, tell."""
    print("demo: preparing 9,857 loans (half a minute; kept for the next time)", flush=True)
    try:
        prepare()
        watched, run_dir, killed_at, exit_code = train_with_a_kill()
    except RuntimeError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    outcome = outcome_of(watched, killed_at)
    print(table(outcome, watched, run_dir), flush=True)
    failed = disappointments(outcome, exit_code)
    for claim in failed:
        print(f"demo: this does not hold: {claim}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
