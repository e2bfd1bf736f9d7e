"""TF_CONFIG and what else a worker is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.contract import WorkerEnv
from phalanx.plan.cluster_spec import tf_config
from phalanx.plan.model import CheckpointPlan, Entrypoint, LogPlan, Plan, TrainPlan, WorkerPlan
from phalanx.plan.worker import checkpoint_dir, worker_argv, worker_env, worker_log

ADDRESSES = ("127.0.0.1:1", "127.0.0.1:2")
PLAN = Plan(
    job="job",
    job_hash="abc",
    entrypoint=Entrypoint("script", "/src/train.py", ("--lr", "0.1")),
    working_dir="/src",
    workers=(WorkerPlan(0, 0, "here"), WorkerPlan(1, 1, "here", {"MINE": "x", "PYTHONUNBUFFERED": "0"})),
    train=TrainPlan(steps=500, seed=7),
)
RUN = Path("/runs/job-1")


def test_tf_config_names_every_worker_and_this_one() -> None:
    assert json.loads(tf_config(ADDRESSES, 1)) == {
        "cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("addresses", "rank", "words"),
    [
        (ADDRESSES, 2, "rank 2 has no address; there are 2"),
        (ADDRESSES, -1, "rank -1 has no address"),
        (("h:1", "h:1"), 0, "an address occurs twice"),
    ],
)
def test_what_tensorflow_would_wait_for_is_refused(addresses: tuple[str, ...], rank: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tf_config(addresses, rank)


def test_a_worker_finds_its_settings_in_its_environment() -> None:
    env = worker_env(PLAN, RUN, 3, PLAN.workers[1], ADDRESSES, "token", {})
    told = WorkerEnv.from_env(env)
    assert told is not None
    assert (told.round, told.rank, told.world_size, told.fence) == (3, 1, 2, "token")
    assert (told.steps, told.seed, told.global_batch) == (500, 7, None)
    assert told.checkpoint_dir == "/runs/job-1/checkpoints"
    assert json.loads(env["TF_CONFIG"])["task"]["index"] == 1
    assert env["TF_GRPC_REUSE_PORT"] == "1"
    assert (env["MINE"], env["PYTHONUNBUFFERED"]) == ("x", "0")


def test_a_job_cannot_override_what_holds_the_gang_together() -> None:
    rogue = replace(PLAN.workers[0], env={"TF_CONFIG": "mine", "TF_GRPC_REUSE_PORT": "0"})
    env = worker_env(PLAN, RUN, 1, rogue, ADDRESSES, "token", {})
    assert json.loads(env["TF_CONFIG"])["task"]["index"] == 0
    assert env["TF_GRPC_REUSE_PORT"] == "1"


def test_paths_follow_the_job_file() -> None:
    assert worker_argv(PLAN, "py") == (
        *("py", "-m", "phalanx.train.bootstrap", "script"),
        *("/src/train.py", "--lr", "0.1"),
    )
    assert worker_log(PLAN, RUN, 2, 1) == RUN / "logs/round-0002/rank-1.log"
    named = replace(PLAN, logs=LogPlan(dir="/logs"), checkpoint=CheckpointPlan(dir="/ckpt"))
    assert worker_log(named, RUN, 2, 1) == Path("/logs/job-1/logs/round-0002/rank-1.log")
    assert checkpoint_dir(named, RUN) == Path("/ckpt")


@pytest.mark.parametrize(
    ("inherited", "without_proxy"),
    [
        ({}, "127.0.0.1"),
        ({"no_proxy": "a.org,b.org"}, "a.org,b.org,127.0.0.1"),
        ({"no_proxy": "a.org", "no_grpc_proxy": "c.org"}, "c.org,127.0.0.1"),
    ],
)
def test_workers_reach_each_other_past_a_proxy(inherited: dict[str, str], without_proxy: str) -> None:
    env = worker_env(PLAN, RUN, 1, PLAN.workers[0], ADDRESSES, "token", inherited)
    assert env["no_grpc_proxy"] == without_proxy
