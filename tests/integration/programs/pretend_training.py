"""A worker that speaks like `phalanx.train` (board, events, checkpoints, SIGTERM), without TensorFlow.

    pretend_training.py STEPS [--fail-at STEP] [--ignore-term]

A checkpoint is an empty directory, saved every 10 steps. `--fail-at` raises on rank 1 in the first round.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from phalanx.contract import EVENTS_FILE, ExitCode, WorkerEnv, board_file
from phalanx.events.board import BoardWriter, read_board
from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog

STEP_S = 0.005
BATCH = 8

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--fail-at", type=int)
parser.add_argument("--ignore-term", action="store_true")
options = parser.parse_args()


def started_as() -> WorkerEnv:
    worker = WorkerEnv.from_env(os.environ)
    assert worker is not None, "to be run by phalanx"
    return worker


worker = started_as()
run_dir, checkpoints = Path(worker.run_dir), Path(worker.checkpoint_dir)
board = BoardWriter(board_file(run_dir, worker.round, worker.rank))
log = EventLog(run_dir / EVENTS_FILE)
asked, pause = threading.Event(), threading.Event()
signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_term else lambda *_: asked.set())


def say(kind: Kind, **data: Any) -> None:
    if worker.rank == 0:
        log.append(kind, round_number=worker.round, rank=0, **data)


def save(step: int) -> None:
    if worker.rank == 0:
        path = checkpoints / f"step-{step:09d}"
        path.mkdir(exist_ok=True)
        say(Kind.CHECKPOINT_COMMITTED, step=step, path=str(path), bytes=0, seconds=0.0)


def leave_if_asked(step: int) -> None:
    if asked.is_set():
        save(step)
        sys.exit(ExitCode.PREEMPTED)


def wait_for_peers(step: int) -> None:
    """Synchronous training: nobody begins a step before all have done the one before."""
    for rank in range(worker.world_size):
        path = board_file(run_dir, worker.round, rank)
        while (peer := read_board(path)) is None or not peer.target_steps or peer.steps_done < step - 1:
            pause.wait(STEP_S)
            leave_if_asked(step - 1)


saved = sorted(int(path.name[5:]) for path in checkpoints.glob("step-*"))
start = saved[-1] if saved else 0
print(f"rank {worker.rank} starts at step {start}", flush=True)
say(
    Kind.TRAINING_STARTED,
    start_step=start,
    steps=options.steps,
    resumed_from=start or None,
    global_batch=BATCH,
)
board.begin_training(start, options.steps)
board.section("step")
for step in range(start + 1, options.steps + 1):
    pause.wait(STEP_S)
    wait_for_peers(step)
    board.steps_done(step, BATCH * (step - start))
    board.measured(1.0 / step, BATCH / STEP_S)
    if start and step == start + 1:
        say(Kind.STEP_RESUMED, step=step)
    if step % 10 == 0:
        say(
            Kind.PROGRESS,
            step=step,
            loss=1.0 / step,
            metrics={"loss": 1.0 / step},
            examples_per_s=BATCH / STEP_S,
        )
        save(step)
    if step == options.fail_at and worker.rank == 1 and worker.round == 1:
        raise ValueError(f"boom at step {step}")
    leave_if_asked(step)
board.section("done")
say(Kind.EVALUATED, step=options.steps, metrics={"auc": 0.75})
say(Kind.TRAINING_FINISHED, step=options.steps, metrics={"loss": 1.0 / options.steps}, seconds=1.0)
print(f"rank {worker.rank} is at the end", flush=True)
