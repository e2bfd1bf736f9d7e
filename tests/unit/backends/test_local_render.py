"""What a dry run of the local backend says, and how a run is looked at from outside."""

from __future__ import annotations

import fcntl
import json
import signal
import sys
from pathlib import Path

import pytest

from phalanx.backends.base import Backend, Observation
from phalanx.backends.local import LocalBackend
from phalanx.errors import UsageError
from phalanx.plan.model import Entrypoint, Plan, WorkerPlan

PLAN = Plan(
    job="job",
    job_hash="abc",
    entrypoint=Entrypoint("function", "jobs:train"),
    working_dir="/src",
    workers=(WorkerPlan(0, 0, "here"), WorkerPlan(1, 1, "here")),
)


def test_render_says_every_process_and_touches_nothing() -> None:
    backend: Backend = LocalBackend()
    absent = Path("/nowhere/runs/job-1")
    submission = backend.render(PLAN, absent)
    assert submission == backend.render(PLAN, absent)
    (agent,) = submission.agents
    assert agent.argv == (sys.executable, "-m", "phalanx.agent", "--launcher-pipe", str(absent))
    assert [worker.name for worker in submission.workers] == ["rank-0", "rank-1"]
    assert submission.workers[1].argv[1:] == ("-m", "phalanx.train.bootstrap", "function", "jobs:train")
    config = json.loads(submission.workers[1].env["TF_CONFIG"])
    assert config["task"]["index"] == 1
    assert config["cluster"]["worker"][1] == "127.0.0.1:<port of rank 1>"


def test_a_run_without_an_agent_is_seen_as_such(tmp_path: Path) -> None:
    backend = LocalBackend()
    assert backend.observe(tmp_path) == Observation(False, None, None, None)
    assert not backend.cancel(tmp_path, signal.SIGTERM)


def test_an_agent_is_alive_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"pid": 4711, "host": "here", "started": 1.5}')
    with (tmp_path / "agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert LocalBackend().observe(tmp_path) == Observation(True, 4711, "here", 1.5)
    assert LocalBackend().observe(tmp_path) == Observation(False, 4711, "here", 1.5)
    assert not LocalBackend().cancel(tmp_path, signal.SIGTERM)


def test_an_agent_of_another_host_is_not_signalled(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"pid": 1, "host": "elsewhere.invalid", "started": 1.5}')
    with (tmp_path / "agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"elsewhere\.invalid"):
            LocalBackend().cancel(tmp_path, signal.SIGTERM)
