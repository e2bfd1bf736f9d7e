"""Starting an agent: what is refused, with which message and code, and how a run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent_bench import make_run, start_agent
from phalanx.contract import AGENT_FILE
from phalanx.events.kinds import Kind

KILLS_ITSELF_IN_3_ROUNDS = "if ROUND < 4:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
WAITS = "touch('up')\nwait_for_the_end()\n"


def test_a_second_agent_for_the_same_run_is_refused(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, WAITS)
    first = start_agent(run_dir)
    first.wait_file("up", 1, 0)
    events = (run_dir / "events.jsonl").read_bytes()
    second = start_agent(run_dir)
    assert second.wait() == 2
    assert "another agent supervises" in second.stderr
    assert (run_dir / "events.jsonl").read_bytes() == events
    assert json.loads((run_dir / AGENT_FILE).read_text())["pid"] == first.process.pid
    first.signal(signal.SIGTERM)
    assert first.wait() == 143


def test_a_resumed_run_counts_its_rounds_on_with_a_new_budget(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, KILLS_ITSELF_IN_3_ROUNDS, max_restarts=1)
    assert start_agent(run_dir).wait() == 137
    again = start_agent(run_dir)
    assert again.wait() == 0
    assert [one.data["resumed"] for one in again.events(Kind.RUN_STARTED)] == [False, True]
    assert [one.round for one in again.events(Kind.ROUND_STARTED)] == [1, 2, 3, 4]
    assert [one.data["restarts_used"] for one in again.events(Kind.RESTARTING)] == [1, 1]


@pytest.mark.parametrize("text", [None, "no json", "{}", '{"version": 99}'])
def test_a_directory_without_a_plan_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    run = start_agent(tmp_path)
    assert run.wait() == 2
    assert "plan.json" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_missing_script_is_told_before_anything_starts(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, "")
    (tmp_path / "run.py").unlink()
    run = start_agent(run_dir)
    assert run.wait() == 2
    assert f"the script {tmp_path}/run.py does not exist" in run.stderr
    assert run.finished()["exit_code"] == 2
    assert run.events(Kind.WORKER_STARTED) == []


def test_the_launcher_pipe_must_be_a_pipe(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path, "")
    result = subprocess.run(
        [sys.executable, "-m", "phalanx.agent", "--launcher-pipe", str(run_dir)],
        check=False,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=20,
    )
    assert result.returncode == 2
    assert "--launcher-pipe needs a pipe" in result.stderr


def test_a_checkpoint_directory_of_a_live_run_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    first = start_agent(make_run(tmp_path, WAITS, name="first", checkpoint_dir=shared))
    first.wait_file("up", 1, 0)
    second = start_agent(make_run(tmp_path, WAITS, name="second", checkpoint_dir=shared))
    assert second.wait() == 2
    assert "belongs to the run first, which is running" in second.finished()["reason"]
    first.signal(signal.SIGTERM)
    assert first.wait() == 143


def test_a_checkpoint_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    run = start_agent(make_run(tmp_path, "", checkpoint_dir=taken))
    assert run.wait() == 83
    assert str(taken) in run.finished()["reason"]
    assert run.events(Kind.WORKER_STARTED) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting needs root: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with pytest.raises(OSError, match="No space left"):
        (disk / "more").write_bytes(bytes(4096))


def test_a_full_checkpoint_directory_is_told(tmp_path: Path, small_disk: Path) -> None:
    fill(small_disk)
    run = start_agent(make_run(tmp_path, "", checkpoint_dir=small_disk / "checkpoints"))
    assert run.wait() == 83
    assert "No space left on device" in run.finished()["reason"]
    assert run.finished()["hint"] != ""


def test_a_read_only_checkpoint_directory_is_told(tmp_path: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    run = start_agent(make_run(tmp_path, "", checkpoint_dir=small_disk / "checkpoints"))
    assert run.wait() == 83
    assert "Read-only file system" in run.finished()["reason"]


def test_a_full_log_directory_is_told(tmp_path: Path, small_disk: Path) -> None:
    fill(small_disk)
    run = start_agent(make_run(tmp_path, "", log_dir=small_disk))
    assert run.wait() == 84
    assert f"the log directory {small_disk}/run/logs cannot be written" in run.stderr


def test_a_run_directory_that_fills_up_does_not_end_the_agent_silently(
    tmp_path: Path, small_disk: Path
) -> None:
    """The next round cannot make its files, and the reason can still be read."""
    run = start_agent(make_run(tmp_path, WAITS, no_progress_rounds=2, name="disk/run"))
    run.wait_file("up", 1, 0)
    run.wait_file("up", 1, 1)
    victim = run.pid(1, 1)
    fill(small_disk)
    os.kill(victim, signal.SIGKILL)
    assert run.wait() == 84
    assert "the files of round 2 cannot be made: [Errno 28]" in run.finished()["reason"]
