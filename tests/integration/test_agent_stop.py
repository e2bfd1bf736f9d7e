"""Stopping a run, and the death of its agent or its launcher: nothing may be left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agent_bench import AgentRun, is_alive, make_run, start_agent
from phalanx.events.kinds import Kind
from waiting import wait_for

SAVES = """
def save(number, frame):
    touch("saved")
    os._exit(82 if RANK == 0 else 80)
signal.signal(signal.SIGTERM, save)
touch("up")
wait_for_the_end()
"""
PLAIN = "touch('up')\nwait_for_the_end()\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PLAIN
WITH_CHILDREN = """
import subprocess
sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
children = [subprocess.Popen(sleeper), subprocess.Popen(sleeper, start_new_session=True)]
print(*[child.pid for child in children], flush=True)
touch("up")
wait_for_the_end()
"""


def running(tmp_path: Path, script: str, *, launcher_pipe: bool = False, **failure: Any) -> AgentRun:
    run = start_agent(make_run(tmp_path, script, **failure), launcher_pipe=launcher_pipe)
    for rank in (0, 1):
        run.wait_file("up", 1, rank)
    return run


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_workers_get_sigterm_and_time_to_save(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = running(tmp_path, SAVES)
    run.signal(number)
    assert run.wait() == code
    assert {path.name for path in run.run_dir.glob("saved-*")} == {"saved-1-0", "saved-1-1"}
    assert run.finished()["state"] == "stopped"
    assert run.finished()["reason"] == f"stopped by {number.name}"
    assert run.events(Kind.STOP_REQUESTED)[0].data == {"by": number.name, "grace_s": 10.0}
    assert [one.data["cause"] for one in run.events(Kind.ROUND_ENDED)] == ["stopped"]


def test_a_script_that_knows_nothing_of_sigterm_just_ends(tmp_path: Path) -> None:
    run = running(tmp_path, PLAIN)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert [one.data["exit_code"] for one in run.events(Kind.WORKER_EXITED)] == [143, 143]


def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    run = running(tmp_path, DEAF, grace_s=0.3)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert "rank 1 was killed after 0.3 s of grace" in run.finished()["reason"]


def test_the_second_signal_kills_at_once(tmp_path: Path) -> None:
    run = running(tmp_path, DEAF, grace_s=60)
    run.signal(signal.SIGINT)
    run.wait_event(Kind.STOP_REQUESTED)
    run.signal(signal.SIGINT)
    assert run.wait() == 130
    assert run.events(Kind.STOP_REQUESTED)[1].data["now"] is True


def test_a_signal_at_the_very_start_is_not_lost(tmp_path: Path) -> None:
    run = start_agent(make_run(tmp_path, PLAIN))
    run.wait_event(Kind.RUN_STARTED)
    run.signal(signal.SIGTERM)
    assert run.wait() == 143
    assert run.finished()["state"] == "stopped"


def test_the_death_of_the_launcher_stops_the_run(tmp_path: Path) -> None:
    run = running(tmp_path, SAVES, launcher_pipe=True)
    assert run.process.stdin is not None
    run.process.stdin.close()
    run.process.stdin = None
    assert run.wait() == 143
    assert run.finished()["reason"] == "stopped by the end of its launcher"
    assert len(list(run.run_dir.glob("saved-*"))) == 2


def test_a_killed_agent_leaves_nobody(tmp_path: Path) -> None:
    run = running(tmp_path, WITH_CHILDREN)
    pids = [int(pid) for rank in (0, 1) for pid in run.log(1, rank).split()]
    pids += [run.pid(1, rank) for rank in (0, 1)]
    assert len(pids) == 6
    run.signal(signal.SIGKILL)
    assert run.wait() == 137
    wait_for(lambda: not any(is_alive(pid) for pid in pids), 5, f"left alive: {pids}")
    assert run.events(Kind.RUN_FINISHED) == []


def test_the_agent_outlives_its_guardian(tmp_path: Path) -> None:
    """A guardian that somebody killed is replaced in the next round and does its work then."""
    run = running(tmp_path, WITH_CHILDREN)
    (guardian,) = guardians(run.process.pid)
    os.kill(guardian, signal.SIGKILL)
    os.kill(run.pid(1, 1), signal.SIGKILL)
    run.wait_file("up", 2, 0)
    run.wait_file("up", 2, 1)
    assert len(guardians(run.process.pid)) == 1
    children = [int(pid) for pid in run.log(2, 0).split()]
    run.signal(signal.SIGKILL)
    run.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in children), 5)


def test_an_agent_buries_what_an_earlier_one_could_not(tmp_path: Path) -> None:
    """Killed together with its guardian an agent leaves grandchildren; the next one finds them."""
    run = running(tmp_path, WITH_CHILDREN)
    children = [int(pid) for rank in (0, 1) for pid in run.log(1, rank).split()]
    for pid in (*guardians(run.process.pid), run.process.pid):
        os.kill(pid, signal.SIGKILL)
    assert run.wait() == 137
    assert all(is_alive(pid) for pid in children)
    again = start_agent(run.run_dir)
    again.wait_file("up", 2, 0)
    assert not any(is_alive(pid) for pid in children)
    again.signal(signal.SIGTERM)
    assert again.wait() == 143


def guardians(agent: int) -> list[int]:
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    return [
        int(pid)
        for pid in children
        if b"phalanx.agent.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes() and is_alive(int(pid))
    ]
