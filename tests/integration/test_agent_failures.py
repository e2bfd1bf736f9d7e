"""What the agent does when a worker fails, with real processes and no TensorFlow."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from agent_bench import is_alive, make_run, start_agent
from phalanx.events.kinds import Kind

BOARD = """
from phalanx.events.board import BoardWriter
board = BoardWriter(board_file(pathlib.Path(ENV.run_dir), ROUND, RANK))
def steps(start, done, target):
    board.begin_training(start, target)
    board.section("step")
    board.steps_done(done, 0)
"""


def test_success(tmp_path: Path) -> None:
    run = start_agent(make_run(tmp_path, "print('rank', RANK, sys.argv[1:], __name__)", args=("--x", "1")))
    assert run.wait() == 0
    assert run.finished()["state"] == "succeeded"
    assert [run.log(1, rank) for rank in (0, 1)] == [
        "rank 0 ['--x', '1'] __main__\n",
        "rank 1 ['--x', '1'] __main__\n",
    ]
    assert [one.data["exit_code"] for one in run.events(Kind.WORKER_EXITED)] == [0, 0]


def test_an_exception_in_rank_1_ends_the_run_after_the_second_time(tmp_path: Path) -> None:
    script = """
def work():
    if RANK == 1:
        raise ValueError("no such column: age")
    wait_for_the_end()
work()
"""
    run = start_agent(make_run(tmp_path, script))
    assert run.wait() == 1
    rounds = run.events(Kind.ROUND_ENDED)
    assert [(one.round, one.rank, one.data["cause"]) for one in rounds] == [
        (1, 1, "user_error"),
        (2, 1, "user_error"),
    ]
    details = rounds[0].data["details"]
    assert details[0] == "Traceback (most recent call last):"
    assert details[1].startswith(f'  File "{tmp_path}/run.py", line ')
    assert details[-1] == "ValueError: no such column: age"
    assert "bootstrap" not in run.log(1, 1)
    assert "ValueError: no such column: age; the same failure twice" in run.finished()["reason"]
    left = [one for one in run.events(Kind.WORKER_EXITED) if one.rank == 0]
    assert [one.data["exit_code"] for one in left] == [137, 137]


def test_a_killed_rank_ends_the_round_and_the_next_one_succeeds(tmp_path: Path) -> None:
    run = start_agent(make_run(tmp_path, "if ROUND == 1:\n    touch('up')\n    wait_for_the_end()\n"))
    run.wait_file("up", 1, 0)
    run.wait_file("up", 1, 1)
    os.kill(run.pid(1, 1), signal.SIGKILL)
    assert run.wait() == 0
    (failed, done) = run.events(Kind.ROUND_ENDED)
    assert (failed.rank, failed.data["cause"]) == (1, "killed")
    assert "by hand, by the kernel for memory, or by a scheduler" in failed.data["message"]
    assert (done.round, done.data["cause"]) == (2, "finished")
    first, second = run.events(Kind.ROUND_STARTED)
    assert not set(first.data["addresses"]) & set(second.data["addresses"])


def test_the_exit_of_a_worker_is_seen_within_100_ms(tmp_path: Path) -> None:
    run = start_agent(make_run(tmp_path, "touch('up')\nwait_for_the_end()\n", max_restarts=0))
    run.wait_file("up", 1, 0)
    run.wait_file("up", 1, 1)
    killed = time.time()
    os.kill(run.pid(1, 0), signal.SIGKILL)
    assert run.wait() == 137
    seen = next(one for one in run.events(Kind.WORKER_EXITED) if one.rank == 0)
    assert seen.time - killed < 0.1


def test_a_native_crash_is_told_with_the_last_lines_of_its_log(tmp_path: Path) -> None:
    script = "import faulthandler\nif RANK == 0:\n    faulthandler._sigsegv()\nwait_for_the_end()\n"
    run = start_agent(make_run(tmp_path, script, max_restarts=0))
    assert run.wait() == 139
    (ended,) = run.events(Kind.ROUND_ENDED)
    assert (ended.rank, ended.data["cause"], ended.data["message"]) == (0, "crashed", "died of SIGSEGV")
    assert "Fatal Python error: Segmentation fault" in ended.data["details"]


def test_a_plain_exit_code_is_told_with_the_last_lines_of_the_log(tmp_path: Path) -> None:
    script = "if RANK == 0:\n    print('giving up', flush=True)\n    os._exit(3)\nwait_for_the_end()\n"
    run = start_agent(make_run(tmp_path, script))
    assert run.wait() == 1
    ended = run.events(Kind.ROUND_ENDED)
    assert [one.data["message"] for one in ended] == ["exited with code 3"] * 2
    assert ended[0].data["details"] == ["giving up"]


@pytest.mark.parametrize(("code", "cause"), [(93, "no_restart"), (2, "usage")])
def test_an_exit_code_that_no_restart_can_help(tmp_path: Path, code: int, cause: str) -> None:
    run = start_agent(make_run(tmp_path, f"sys.exit({code} if RANK else 0)"))
    assert run.wait() == code
    (ended,) = run.events(Kind.ROUND_ENDED)
    assert ended.data["cause"] == cause


def test_a_rank_that_leaves_early_with_0_is_the_cause(tmp_path: Path) -> None:
    script = BOARD + "steps(0, 3, 10)\nif RANK == 1:\n    sys.exit(0)\nwait_for_the_end()\n"
    run = start_agent(make_run(tmp_path, script))
    assert run.wait() == 1
    ended = run.events(Kind.ROUND_ENDED)[0]
    assert (ended.rank, ended.data["cause"]) == (1, "early_exit")
    assert ended.data["message"] == "exited with 0 after step 3 of 10 while work remained"


def test_a_rank_that_leaves_with_0_before_a_peer_is_lost_is_the_cause(tmp_path: Path) -> None:
    script = """
if RANK == 0:
    touch("left")
    sys.exit(0)
wait_until("left", ROUND, 0)
threading.Event().wait(0.3)  # a peer takes a moment to see it
sys.exit(80)
"""
    run = start_agent(make_run(tmp_path, script))
    assert run.wait() == 1
    ended = run.events(Kind.ROUND_ENDED)[0]
    assert (ended.rank, ended.data["cause"]) == (0, "early_exit")


def test_ranks_may_leave_with_0_at_different_times(tmp_path: Path) -> None:
    script = "if RANK == 0:\n    touch('left')\nelse:\n    wait_until('left', 1, 0)\n"
    run = start_agent(make_run(tmp_path, script, workers=3))
    assert run.wait() == 0


def test_fallout_is_not_taken_for_the_cause(tmp_path: Path) -> None:
    script = """
if RANK == 0:
    touch("lost")
    sys.exit(80)
wait_until("lost", 1, 0)
threading.Event().wait(0.3)
raise ValueError("the cause")
"""
    run = start_agent(make_run(tmp_path, script, max_restarts=0))
    assert run.wait() == 1
    (ended,) = run.events(Kind.ROUND_ENDED)
    assert (ended.rank, ended.data["message"]) == (1, "the cause")


def test_the_restart_budget_and_no_progress(tmp_path: Path) -> None:
    script = BOARD + "steps(ROUND, ROUND + 1, 100)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    run = start_agent(make_run(tmp_path, script, workers=1, max_restarts=3))
    assert run.wait() == 137
    assert [one.data["delay_s"] for one in run.events(Kind.RESTARTING)] == [0, 0, 0]
    assert "all restarts are used (failure.max_restarts = 3)" in run.finished()["reason"]


def test_rounds_without_a_new_step_end_the_run(tmp_path: Path) -> None:
    script = BOARD + "steps(100, 120, 500)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    run = start_agent(make_run(tmp_path, script, workers=1, no_progress_rounds=2))
    assert run.wait() == 137
    assert len(run.events(Kind.ROUND_STARTED)) == 3
    assert "no new step in 2 failed rounds in a row" in run.finished()["reason"]


def test_what_a_worker_started_dies_with_its_round(tmp_path: Path) -> None:
    script = """
import subprocess
sleeper = [sys.executable, "-c", "import signal; signal.pause()"]
own_group = subprocess.Popen(sleeper)
own_session = subprocess.Popen(sleeper, start_new_session=True)
print(own_group.pid, own_session.pid, flush=True)
"""
    run = start_agent(make_run(tmp_path, script, workers=1))
    assert run.wait() == 0
    children = [int(pid) for pid in run.log(1, 0).split()]
    assert len(children) == 2
    assert not any(is_alive(pid) for pid in children)


def test_a_port_that_cannot_be_bound_ends_the_round_and_fresh_ports_follow(tmp_path: Path) -> None:
    """TensorFlow's words in an error class of its name; the real one is tested where TensorFlow runs."""
    script = """
class UnknownError(Exception):
    __module__ = "tensorflow.python.framework.errors_impl"
if ROUND == 1 and RANK == 1:
    raise UnknownError("Could not start gRPC server")
if ROUND == 1:
    wait_for_the_end()
"""
    run = start_agent(make_run(tmp_path, script))
    assert run.wait() == 0
    ended = run.events(Kind.ROUND_ENDED)[0]
    assert (ended.rank, ended.data["cause"]) == (1, "infrastructure")
    assert ended.data["message"].startswith("Could not start gRPC server")
    first, second = run.events(Kind.ROUND_STARTED)
    assert not set(first.data["addresses"]) & set(second.data["addresses"])
