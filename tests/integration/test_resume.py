"""A job that is killed and stopped on the way ends with the weights of one that was not, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_bench import AgentRun, start_agent
from phalanx.contract import PLAN_FILE
from phalanx.events.kinds import Kind
from phalanx.plan.model import CheckpointPlan, Entrypoint, FailurePlan, Plan, TrainPlan, WorkerPlan

pytestmark = pytest.mark.tensorflow

PROGRAM = Path(__file__).parent / "programs" / "resumed_training.py"
STEPS = 40
EVERY = 6


def start(directory: Path, end: str) -> AgentRun:
    """Start a run of two workers that ends its rounds as `end` says; its files are in `directory`."""
    plan = Plan(
        job="resume",
        job_hash="0",
        entrypoint=Entrypoint("script", str(PROGRAM), (str(directory),)),
        working_dir=str(directory),
        workers=tuple(WorkerPlan(rank, rank, "localhost", {"END": end}) for rank in range(2)),
        train=TrainPlan(steps=STEPS, global_batch=16, seed=11),
        checkpoint=CheckpointPlan(every_steps=EVERY),
        failure=FailurePlan(max_restarts=2),
    )
    (directory / PLAN_FILE).write_text(plan.to_json())
    return start_agent(directory)


def logs(run: AgentRun) -> str:
    return "\n".join(path.read_text() for path in sorted(run.run_dir.glob("logs/*/*.log")))


def weights(directory: Path, rank: int) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(directory / f"rank-{rank}.npz") as arrays:
        return dict(arrays)


def test_a_killed_and_stopped_job_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    drawn = random.Random(20260301)
    killed_rank, killed_at = drawn.randrange(2), drawn.randrange(EVERY + 1, 20)
    stopped_at = drawn.randrange(25, 35)

    undisturbed = start(whole, "")
    assert undisturbed.wait(150) == 0, logs(undisturbed)

    run = start(broken, f"kill {killed_rank} {killed_at},stop 0 {stopped_at}")
    assert run.wait(150) != 0
    assert run.finished()["state"] == "stopped", logs(run)
    assert run.events(Kind.CHECKPOINT_RESTORED)[0].data["step"] == killed_at - killed_at % EVERY
    assert run.events(Kind.STEP_RESUMED)[0].data["step"] == killed_at - killed_at % EVERY + 1
    # The chief saved at the very step at which it was asked to stop, or at the next one.
    saved = run.events(Kind.CHECKPOINT_COMMITTED)[-1].data["step"]
    assert saved in (stopped_at, stopped_at + 1)

    resumed = start_agent(broken)
    assert resumed.wait(150) == 0, logs(resumed)
    assert resumed.events(Kind.CHECKPOINT_RESTORED)[1].data["step"] == saved

    for rank in range(2):
        expected, found = weights(whole, rank), weights(broken, rank)
        assert expected.pop("resumed_from") == 0
        assert found.pop("resumed_from") == saved
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=f"rank {rank} {name}")
