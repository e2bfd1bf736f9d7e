"""The local backend with a real agent: its exit code, its signals, and the launcher's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent_bench import AgentRun, make_run
from phalanx.backends.local import LocalBackend
from phalanx.contract import PLAN_FILE
from phalanx.errors import InfrastructureError
from phalanx.events.kinds import Kind
from phalanx.plan.model import Plan
from waiting import wait_for

WAITS = "touch('up')\nwait_for_the_end()\n"


def plan_of(run_dir: Path) -> Plan:
    return Plan.from_json((run_dir / PLAN_FILE).read_text())


def test_submit_observe_cancel(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, WAITS)
    backend = LocalBackend()
    agent = backend.submit(backend.render(plan_of(run_dir), run_dir))
    wait_for((run_dir / "up-1-0").exists, 20)
    seen = backend.observe(run_dir)
    assert (seen.alive, seen.pid) == (True, agent.pid)
    assert agent.wait(0) is None
    assert backend.cancel(run_dir, signal.SIGTERM)
    assert agent.wait(20) == 143
    agent.signal(signal.SIGTERM)
    assert not backend.observe(run_dir).alive


def test_the_agent_hears_its_launcher(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, WAITS)
    backend = LocalBackend()
    agent = backend.submit(backend.render(plan_of(run_dir), run_dir))
    wait_for((run_dir / "up-1-0").exists, 20)
    agent.signal(signal.SIGINT)
    assert agent.wait(20) == 130


def test_an_agent_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, "")
    submission = LocalBackend().render(plan_of(run_dir), tmp_path / "gone")
    with pytest.raises(InfrastructureError, match="cannot be started"):
        LocalBackend().submit(submission)


LAUNCHER = """
import sys
from pathlib import Path
from phalanx.backends.local import LocalBackend
from phalanx.plan.model import Plan
run_dir = Path(sys.argv[1])
backend = LocalBackend()
agent = backend.submit(backend.render(Plan.from_json((run_dir / "plan.json").read_text()), run_dir))
agent.wait(60)
"""


def test_a_killed_launcher_stops_the_run(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, WAITS)
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(run_dir)], text=True)
    wait_for((run_dir / "up-1-0").exists, 20)
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait(10)
    finished = AgentRun(run_dir, launcher).wait_event(Kind.RUN_FINISHED)
    assert finished.data["reason"] == "stopped by the end of its launcher"
