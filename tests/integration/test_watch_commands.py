"""`status`, `list`, `logs`, `events`, `cancel`, `resume` from another process, during a run and after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from launching import LONG, PHALANX, PRETEND, Run, phalanx
from phalanx.cli.runs import job_of
from phalanx.contract import EVENTS_FILE, PLAN_FILE, ExitCode
from phalanx.events.kinds import Kind
from waiting import wait_for


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A run of two workers and two rounds that has succeeded."""
    done = phalanx("run", PRETEND, "-n", "2", "--json", "--", "20", "--fail-at", "15", cwd=tmp_path)
    assert done.code == 0, done.stdout
    return Path(done.json["dir"])


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_during_a_run_and_after_it_was_cancelled(tmp_path: Path) -> None:
    run = Run(PRETEND, "-n", "2", "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    status = phalanx("status", "--json").json
    assert (status["run"], status["state"], status["agent_alive"]) == (run.id, "running", True)
    assert status["step"] >= 10
    assert [rank["section"] for rank in status["ranks"]] == ["step", "step"]
    shown = phalanx("status", run.id)
    assert f"{run.id}: running" in shown.stdout
    assert f"of {LONG}" in shown.stdout
    (listed,) = phalanx("list", "--json").json
    assert (listed["run"], listed["state"]) == (run.id, "running")
    assert "rank 1 starts at step 0" in phalanx("logs", run.id, "--rank", "1").stdout
    assert "training from step 0" in phalanx("events", run.id).stdout
    refused = phalanx("resume", run.id)
    assert refused.code == ExitCode.USAGE
    assert f"phalanx cancel {run.id}" in refused.stderr

    cancelled = phalanx("cancel", run.id, "--json")
    assert cancelled.json == {"run": run.id, "state": "stopped", "cancelled": True}
    done = run.wait()
    assert done.code == ExitCode.TERMINATED
    assert "stopped by SIGTERM" in done.stdout
    again = phalanx("cancel", run.id)
    assert (again.code, again.stderr) == (0, "")
    assert "nothing to cancel" in again.stdout
    assert phalanx("status", run.id, "--json").json["state"] == "stopped"


def test_a_run_that_has_no_agent_yet_is_cancelled(tmp_path: Path) -> None:
    run = Run(PRETEND, "--", LONG, cwd=tmp_path)
    cancelled = phalanx("cancel", run.id, "--json")
    assert cancelled.json == {"run": run.id, "state": "stopped", "cancelled": True}
    assert run.wait().code == ExitCode.TERMINATED


def test_a_start_that_was_refused_does_not_hide_the_live_run_from_cancel(tmp_path: Path) -> None:
    shared = ("--set", f"checkpoint.dir={tmp_path / 'shared'}")
    run = Run(PRETEND, *shared, "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.ROUND_STARTED)
    refused = phalanx("run", PRETEND, *shared, "--", LONG, cwd=tmp_path)
    assert refused.code == ExitCode.USAGE
    cancelled = phalanx("cancel", job_of(run.id), "--json")
    assert cancelled.json == {"run": run.id, "state": "stopped", "cancelled": True}
    assert run.wait().code == ExitCode.TERMINATED
    again = phalanx("cancel", job_of(run.id), "--json")
    assert again.json["cancelled"] is False
    assert again.json["run"] != run.id, "with none alive the name is its newest run"


def test_a_finished_run(ended: Path) -> None:
    status = phalanx("status", ended.name, "--json").json
    assert (status["state"], status["step"], status["round"], status["exit_code"]) == ("succeeded", 20, 2, 0)
    assert status["evaluated"] == {"auc": 0.75}
    assert status["failure"]["message"] == "boom at step 15"
    assert status["recovery_s"] > 0
    assert status["checkpoint"]["step"] == 20
    listed = phalanx("list")
    assert listed.stdout.splitlines()[1].split()[:3] == [ended.name, "succeeded", "20"]
    assert phalanx("cancel", ended.name).code == 0


def test_logs(ended: Path) -> None:
    last = phalanx("logs", ended.name).stdout.splitlines()
    assert last == [
        "[rank 0] rank 0 starts at step 10",
        "[rank 0] rank 0 is at the end",
        "[rank 1] rank 1 starts at step 10",
        "[rank 1] rank 1 is at the end",
    ]
    first = phalanx("logs", ended.name, "--rank", "1", "--round", "1").stdout
    assert first.startswith("rank 1 starts at step 0\n")
    assert "ValueError: boom at step 15" in first
    every = json_lines(phalanx("logs", ended.name, "--round", "all", "--json", "-n", "1").stdout)
    assert [(line["round"], line["rank"]) for line in every] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert every[1]["line"] == "ValueError: boom at step 15"
    followed = phalanx("logs", ended.name, "--follow", "-n", "1", "--rank", "0")
    assert followed.stdout == "[round 2] rank 0 is at the end\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rank", "7"], "ranks 0 to 1"),
        (["--round", "9"], "rounds 1 to 2"),
        (["--round", "last"], "`all`"),
        (["--round", "0"], "from 1 on"),
    ],
)
def test_logs_that_are_not_there(ended: Path, arguments: list[str], words: str) -> None:
    done = phalanx("logs", ended.name, *arguments)
    assert (done.code, done.stdout) == (ExitCode.USAGE, "")
    assert words in done.stderr


def test_events(ended: Path) -> None:
    events = json_lines(phalanx("events", ended.name, "--json").stdout)
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    assert kinds.count("round_started") == 2
    readable = phalanx("events", "--follow", ended.name).stdout.splitlines()
    assert len(readable) == len(events)
    assert readable[-1].endswith("the work is done")


def test_following_goes_on_into_new_rounds_and_ends_with_the_run(tmp_path: Path) -> None:
    run = Run(PRETEND, "-n", "2", "--", "200", "--fail-at", "150", cwd=tmp_path)
    run.wait_event(Kind.WORKER_STARTED)
    logs = phalanx("logs", "-f", "--rank", "1", run.id)
    events = phalanx("events", "-f", "--json", run.id)
    assert run.wait().code == 0
    assert "[round 1] ValueError: boom at step 150" in logs.stdout
    assert logs.stdout.endswith("[round 2] rank 1 is at the end\n")
    assert json_lines(events.stdout)[-1]["kind"] == "run_finished"


def test_ctrl_c_ends_following_quietly(tmp_path: Path) -> None:
    run = Run(PRETEND, "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.TRAINING_STARTED)
    follower = subprocess.Popen(
        [PHALANX, "events", "-f", run.id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, stderr = follower.communicate(timeout=20)
    assert (follower.returncode, stderr) == (ExitCode.INTERRUPTED, "")
    assert phalanx("cancel", "--now", run.id).code == 0
    run.wait()


def test_cancel_now_ends_workers_that_do_not_listen(tmp_path: Path) -> None:
    run = Run(PRETEND, "--set", "failure.grace_s=200", "--", LONG, "--ignore-term", cwd=tmp_path)
    run.wait_event(Kind.TRAINING_STARTED)
    asked = phalanx("cancel", run.id, "--no-wait")
    assert asked.code == 0
    assert "asked to stop" in asked.stdout
    run.wait_event(Kind.STOP_REQUESTED)
    waited = phalanx("cancel", run.id, "--timeout", "0.2")  # stopping already: only waits
    assert waited.code == ExitCode.INFRASTRUCTURE
    assert "cancel --now" in waited.stderr
    assert len(run.events(Kind.STOP_REQUESTED)) == 1
    now = phalanx("cancel", "--now", run.id)
    assert (now.code, now.stderr) == (0, "")
    assert run.wait().code == ExitCode.TERMINATED


def test_cancel_now_ends_an_agent_that_hangs(tmp_path: Path) -> None:
    run = Run(PRETEND, "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.TRAINING_STARTED)
    os.kill(run.agent_pid(), signal.SIGSTOP)
    now = phalanx("cancel", "--now", "--json", run.id)
    assert now.code == 0
    assert now.json["state"] == "lost"
    assert run.wait().code == ExitCode.INFRASTRUCTURE


def test_an_agent_that_died_with_its_launcher_shows_as_lost(tmp_path: Path) -> None:
    run = Run(PRETEND, "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    agent = run.agent_pid()
    run.signal(signal.SIGSTOP)  # so that it cannot tell
    os.kill(agent, signal.SIGKILL)
    run.signal(signal.SIGKILL)
    run.wait()
    status = phalanx("status", run.id, "--json").json
    assert (status["state"], status["exit_code"]) == ("lost", ExitCode.INFRASTRUCTURE)
    assert status["step"] >= 10
    assert phalanx("list", "--json").json[0]["state"] == "lost"
    assert f"phalanx resume {run.id}" in phalanx("status").stdout
    assert "nothing to cancel" in phalanx("cancel", run.id).stdout


def test_no_runs_at_all(tmp_path: Path) -> None:
    assert phalanx("list", "--json").json == []
    assert "no runs in" in phalanx("list").stdout
    for command in ("status", "logs", "events"):
        done = phalanx(command)
        assert (done.code, done.stdout) == (ExitCode.USAGE, "")
        assert "phalanx run" in done.stderr
    for command in ("status", "logs", "events", "cancel", "resume"):
        done = phalanx(command, "nothing")
        assert (done.code, done.stdout) == (ExitCode.USAGE, "")
        assert "there is no run 'nothing'" in done.stderr


def test_near_matches_are_named(ended: Path) -> None:
    done = phalanx("status", "pretend-trainin")
    assert done.code == 0  # the beginning of one run only
    typo = phalanx("status", "pretend-trianing")
    assert (typo.code, "did you mean pretend-training" in typo.stderr) == (ExitCode.USAGE, True)


def test_a_damaged_event_log_is_read_as_far_as_it_goes(ended: Path) -> None:
    path = ended / EVENTS_FILE
    lines = path.read_bytes().splitlines(keepends=True)
    junk = [
        b"\xff\xfe\n",
        b"{\n",
        b"[]\n",
        b'{"time":"x","kind":"progress"}\n',
        b"[" * 5000 + b"\n",
        b'{"time":1,"ki',
    ]
    path.write_bytes(b"".join([*lines[:3], *junk[:-1], *lines[3:], junk[-1]]))
    status = phalanx("status", ended.name)
    assert (status.code, status.stderr.count("5 lines of")) == (0, 1)
    data = phalanx("status", ended.name, "--json").json
    assert (data["state"], data["problems"]) == ("succeeded", [data["problems"][0]])
    for command in ("events", "logs", "list"):
        assert phalanx(command).code == 0
    path.write_bytes(b"")
    assert phalanx("status", ended.name).code == 0
    assert phalanx("logs", ended.name).code == ExitCode.USAGE
    path.unlink()
    assert phalanx("events", ended.name).code == 0


def test_a_damaged_plan_is_told_where_it_is_needed(ended: Path) -> None:
    (ended / PLAN_FILE).write_text('{"version": 1}')
    assert "plan.json is broken" in phalanx("status", ended.name).stderr
    assert phalanx("status", ended.name, "--json").json["checkpoint_dir"] is None
    for command in ("logs", "events", "list"):
        assert phalanx(command).code == 0
    done = phalanx("resume", ended.name)
    assert (done.code, "plan.json is broken" in done.stderr) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("command", ["events", "logs", "list", "status"])
def test_a_reader_that_leaves_early_is_no_error(ended: Path, command: str) -> None:
    script = f"{PHALANX} {command} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    assert len(done.stdout) == 1


def test_a_run_is_seen_at_once(tmp_path: Path) -> None:
    run = Run(PRETEND, "--", LONG, cwd=tmp_path)
    seen = phalanx("status", run.id, "--json").json
    assert seen["state"] in ("starting", "running")
    wait_for(lambda: phalanx("status", run.id, "--json").json["state"] == "running", 20)
    assert phalanx("cancel", str(run.run_dir), "--now").code == 0
    run.wait()
