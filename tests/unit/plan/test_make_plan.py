"""The plan follows from the job and the number of cores alone, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from phalanx.plan.explain import Row, explain
from phalanx.plan.make import job_hash, make_plan
from phalanx.plan.model import CheckpointPlan, Entrypoint, FailurePlan, LogPlan, Plan, TrainPlan
from phalanx.spec.job import (
    CheckpointSpec,
    EntrypointSpec,
    FailureSpec,
    JobSpec,
    LoadedJob,
    LogsSpec,
    TrainSpec,
    WorkersSpec,
)

JOB = JobSpec(
    name="credit-risk",
    entrypoint=EntrypointSpec("script", "/jobs/a/train.py"),
    working_dir="/jobs/a",
    args=("--lr", "0.1"),
    env={"DATA": "/data", "B": "1"},
    workers=WorkersSpec(3),
    train=TrainSpec(1000, 64, 7, "mixed_bfloat16", True),
    checkpoint=CheckpointSpec("/ck", 100, 2),
    failure=FailureSpec(4, 12.5, 2),
    logs=LogsSpec("/logs", 9),
)


def test_every_field_reaches_the_plan() -> None:
    plan = make_plan(JOB, cores=8)
    assert plan.job == "credit-risk"
    assert plan.entrypoint == Entrypoint("script", "/jobs/a/train.py", ("--lr", "0.1"))
    assert plan.working_dir == "/jobs/a"
    assert [(worker.rank, worker.local_rank, worker.node) for worker in plan.workers] == [
        (0, 0, "localhost"),
        (1, 1, "localhost"),
        (2, 2, "localhost"),
    ]
    assert plan.train == TrainPlan(1000, 64, 7, "mixed_bfloat16", True)
    assert plan.checkpoint == CheckpointPlan("/ck", 100, 2)
    assert plan.failure == FailurePlan(4, 12.5, 2)
    assert plan.logs == LogPlan("/logs", 9)
    assert Plan.from_json(plan.to_json()) == plan


def test_defaults_of_job_and_plan_agree() -> None:
    spec = JobSpec("a", EntrypointSpec("function", "m:f"), "/")
    plan = make_plan(spec, cores=1)
    bare = Plan("a", plan.job_hash, plan.entrypoint, "/", plan.workers)
    assert plan == bare


def test_same_job_gives_the_same_bytes() -> None:
    other = replace(JOB, env={"B": "1", "DATA": "/data"})
    assert make_plan(JOB, cores=8).to_json() == make_plan(other, cores=8).to_json()


@pytest.mark.parametrize(
    ("count", "cpus", "cores", "threads"),
    [(3, None, 8, "2"), (3, None, 2, "1"), (1, None, 8, "8"), (3, 5, 8, "5")],
)
def test_threads_follow_from_cpus_or_share_the_cores(
    count: int, cpus: int | None, cores: int, threads: str
) -> None:
    plan = make_plan(replace(JOB, workers=WorkersSpec(count, cpus)), cores=cores)
    for worker in plan.workers:
        assert worker.env == {
            "DATA": "/data",
            "B": "1",
            "OMP_NUM_THREADS": threads,
            "TF_NUM_INTEROP_THREADS": threads,
            "TF_NUM_INTRAOP_THREADS": threads,
        }


def test_the_job_file_wins_over_derived_threads() -> None:
    plan = make_plan(replace(JOB, env={"OMP_NUM_THREADS": "7"}), cores=3)
    assert plan.workers[0].env["OMP_NUM_THREADS"] == "7"
    assert plan.workers[0].env["TF_NUM_INTRAOP_THREADS"] == "1"


SAME_TRAINING: dict[str, Any] = {
    "name": "other",
    "working_dir": "/jobs/b",
    "entrypoint": EntrypointSpec("script", "/jobs/b/train.py"),
    "workers": WorkersSpec(2, 4),
    "train": replace(JOB.train, steps=2000),
    "checkpoint": CheckpointSpec("/elsewhere", 1, 1),
    "failure": FailureSpec(0, 0, 1),
    "logs": LogsSpec(None, 0),
}
OTHER_TRAINING: dict[str, Any] = {
    "entrypoint": EntrypointSpec("script", "/jobs/a/other.py"),
    "args": ("--lr", "0.2"),
    "env": {"DATA": "/other", "B": "1"},
    "train": replace(JOB.train, seed=8),
}


@pytest.mark.parametrize("field", SAME_TRAINING)
def test_hash_stays_where_the_training_does(field: str) -> None:
    assert job_hash(replace(JOB, **{field: SAME_TRAINING[field]})) == job_hash(JOB)


@pytest.mark.parametrize("field", OTHER_TRAINING)
def test_hash_changes_with_the_training(field: str) -> None:
    assert job_hash(replace(JOB, **{field: OTHER_TRAINING[field]})) != job_hash(JOB)


@pytest.mark.parametrize("change", [{"global_batch": 32}, {"precision": "float32"}, {"xla": False}])
def test_hash_changes_with_what_a_step_computes(change: dict[str, Any]) -> None:
    assert job_hash(replace(JOB, train=replace(JOB.train, **change))) != job_hash(JOB)


def test_hash_is_the_same_on_every_machine() -> None:
    assert job_hash(JOB) == "873dd084da5d7d6bd8df2377f7d7971aad07aa845d8ee9655679a76a13a0dc9a"


def test_explain_tells_the_origin_of_every_value() -> None:
    job = LoadedJob(JOB, {"name": "job.yaml:3", "env.B": "--set env.B=1", "train.steps": "default"}, None, "")
    rows = explain(job, make_plan(JOB, cores=8), cores=8)
    assert rows[:3] == [
        Row("name", "credit-risk", "job.yaml:3"),
        Row("env.B", "1", "--set env.B=1"),
        Row("train.steps", 1000, "default"),
    ]
    assert Row("working_dir", "/jobs/a", "current directory") in rows
    assert Row("env.OMP_NUM_THREADS", "2", "8 cores shared by 3 workers, 2 each") in rows
    assert rows[-1].path == "job_hash"
    alone = replace(JOB, workers=WorkersSpec(1))
    rows = explain(LoadedJob(alone, {}, None, ""), make_plan(alone, cores=8), cores=8)
    assert Row("env.OMP_NUM_THREADS", "8", "8 cores shared by 1 worker, 8 each") in rows


def test_explain_names_cpus_as_the_origin_of_threads() -> None:
    spec = replace(JOB, workers=WorkersSpec(3, 5), env={"OMP_NUM_THREADS": "1"})
    rows = explain(LoadedJob(spec, {}, None, ""), make_plan(spec, cores=8), cores=8)
    assert Row("env.TF_NUM_INTRAOP_THREADS", "5", "from workers.cpus") in rows
    assert not [row for row in rows if row.path == "env.OMP_NUM_THREADS"]
