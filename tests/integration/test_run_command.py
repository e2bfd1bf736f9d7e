"""`phalanx run` and `phalanx resume` as a user meets them: outcomes, signals, terminals, deaths."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pexpect
import pytest

from launching import LONG, PHALANX, PRETEND, Run, events_of, phalanx
from phalanx.contract import ExitCode
from phalanx.events.kinds import Kind
from waiting import wait_for

HELLO = """\
import json, os, sys
print("hello", json.loads(os.environ["TF_CONFIG"])["task"]["index"], sys.argv[1:], os.getcwd())
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def only_run(tmp_path: Path) -> Path:
    (run_dir,) = (tmp_path / "phalanx-home" / "runs").iterdir()
    return run_dir


def test_a_script_runs_on_every_rank_with_its_arguments(tmp_path: Path) -> None:
    write(tmp_path / "hello.py", HELLO)
    done = phalanx("run", "hello.py", "-n", "2", "--", "--lr", "0.1", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert ": succeeded" in done.stdout
    assert "\x1b" not in done.stdout  # no terminal, no colours
    assert done.stderr == ""
    run_dir = only_run(tmp_path)
    for rank in (0, 1):
        log = (run_dir / "logs" / "round-0001" / f"rank-{rank}.log").read_text()
        assert log == f"hello {rank} ['--lr', '0.1'] {tmp_path}\n"


def test_training_ends_with_its_figures(tmp_path: Path) -> None:
    done = phalanx("run", PRETEND, "-n", "2", "--", "40", "--fail-at", "25", cwd=tmp_path)
    assert done.code == 0, done.stdout
    for words in (
        "40 of 40",
        "2 (1 restart",
        "auc 0.75",
        "step-000000040",
        "from the failure to the first step",
    ):
        assert words in done.stdout


def test_a_failure_is_told_with_its_root_cause(tmp_path: Path) -> None:
    write(tmp_path / "bad.py", 'raise ValueError("boom")\n')
    done = phalanx("run", "bad.py", "-n", "2", cwd=tmp_path)
    assert done.code == ExitCode.USER_ERROR
    run_dir = only_run(tmp_path)
    for words in (
        ": failed",
        "ValueError: boom",
        'raise ValueError("boom")',
        "rank-",
        f"phalanx resume {run_dir.name}",
    ):
        assert words in done.stdout
    assert "the same failure twice" in done.stdout


def test_a_message_that_no_terminal_can_show_is_told_all_the_same(tmp_path: Path) -> None:
    write(tmp_path / "bad.py", 'raise ValueError("name \\udcff " + "x" * 1_000_000)\n')
    done = phalanx("run", "bad.py", "--set", "failure.max_restarts=0", cwd=tmp_path)
    assert done.code == ExitCode.USER_ERROR
    assert "\\udcff xxx" in done.stdout
    assert (only_run(tmp_path) / "events.jsonl").stat().st_size < 64 * 1024


def test_a_reader_that_is_gone_at_the_end_does_not_change_the_exit_code(tmp_path: Path) -> None:
    write(tmp_path / "bad.py", "raise SystemExit(93)\n")
    run = Run("bad.py", "--json", cwd=tmp_path)
    run.close_stdout()
    assert run.wait().code == ExitCode.NO_RESTART


def test_a_run_directory_that_is_deleted_is_told(tmp_path: Path) -> None:
    write(
        tmp_path / "delete.py", f"import shutil\nshutil.rmtree({str(tmp_path / 'phalanx-home' / 'runs')!r})\n"
    )
    done = phalanx("run", "delete.py", cwd=tmp_path)
    assert done.code == ExitCode.INFRASTRUCTURE
    assert "was deleted, and the run ended with it" in done.stderr
    assert "phalanx resume" not in done.stdout + done.stderr


def test_the_exit_code_is_the_program_s(tmp_path: Path) -> None:
    write(tmp_path / "stop.py", "raise SystemExit(93)\n")
    assert phalanx("run", "stop.py", cwd=tmp_path).code == ExitCode.NO_RESTART


def test_what_cannot_start_is_one_message(tmp_path: Path) -> None:
    done = phalanx("run", "nothing.py", cwd=tmp_path)
    assert (done.code, done.stdout) == (ExitCode.USAGE, "")
    assert "there is no such file" in done.stderr
    assert not (tmp_path / "phalanx-home").exists()


def test_what_the_agent_refuses_is_one_message(tmp_path: Path) -> None:
    script = write(tmp_path / "stop.py", "raise SystemExit(93)\n")
    assert phalanx("run", str(script)).code == ExitCode.NO_RESTART
    script.unlink()
    done = phalanx("resume", "stop", "--plain")
    assert done.code == ExitCode.USAGE
    assert (done.stdout + done.stderr).count(f"the script {script} does not exist") == 1
    assert done.stderr.startswith("phalanx: the script")


def test_a_home_that_cannot_be_made_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "hello.py", HELLO)
    monkeypatch.setenv("PHALANX_HOME", str(write(tmp_path / "file", "")))
    done = phalanx("run", "hello.py", cwd=tmp_path)
    assert (done.code, done.stdout) == (ExitCode.INFRASTRUCTURE, "")
    assert "cannot be made: Not a directory" in done.stderr
    assert "PHALANX_HOME=" in done.stderr


def test_a_job_file_runs_and_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "hello.py", HELLO)
    text = "apiVersion: phalanx/v1\nkind: TrainingJob\nname: hello-job\nentrypoint: hello.py\n"
    text += "workers: {count: 2}\n"
    write(tmp_path / "job.yaml", text)
    done = phalanx("run", "job.yaml", cwd=tmp_path)
    assert done.code == 0, done.stderr
    run_dir = only_run(tmp_path)
    assert run_dir.name.startswith("hello-job-")
    assert (run_dir / "job.yaml").read_text() == text
    for extra in (["-n", "3"], ["--", "--lr", "0.1"]):
        refused = phalanx("run", "job.yaml", *extra, cwd=tmp_path)
        assert refused.code == ExitCode.USAGE
        assert "job.yaml" in refused.stderr
    assert only_run(tmp_path) == run_dir


def test_json_prints_the_final_status_and_nothing_else(tmp_path: Path) -> None:
    done = phalanx("run", PRETEND, "--json", "--", "20", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert (done.json["state"], done.json["step"], done.json["agent_alive"]) == ("succeeded", 20, False)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
def test_a_signal_stops_gracefully(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = Run(PRETEND, "-n", "2", "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    run.signal(number)
    done = run.wait()
    assert done.code == code
    assert f"{run.id}: stopped" in done.stdout
    assert f"phalanx resume {run.id}" in done.stdout
    (finished,) = run.events(Kind.RUN_FINISHED)
    assert finished.data["state"] == "stopped"
    first = run.events(Kind.STOP_REQUESTED)[0]
    assert [event for event in run.events(Kind.CHECKPOINT_COMMITTED) if event.time > first.time]


def test_a_signal_before_the_agent_listens_is_not_lost(tmp_path: Path) -> None:
    run = Run(PRETEND, "--", LONG, cwd=tmp_path)
    run.signal(signal.SIGINT)
    assert run.wait().code == ExitCode.INTERRUPTED
    assert [event.data["state"] for event in run.events(Kind.RUN_FINISHED)] == ["stopped"]


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    run = Run(PRETEND, "-n", "2", "--set", "failure.grace_s=200", "--", LONG, "--ignore-term", cwd=tmp_path)
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    run.signal(signal.SIGTERM)
    run.wait_event(Kind.STOP_REQUESTED)

    def asked_again() -> bool:
        run.signal(signal.SIGTERM)
        return len(run.events(Kind.STOP_REQUESTED)) == 2

    wait_for(asked_again, 20)
    assert run.wait().code == ExitCode.TERMINATED
    assert run.events(Kind.STOP_REQUESTED)[1].data["now"] is True


def test_a_terminal_that_closes_stops_gracefully(tmp_path: Path) -> None:
    child = pexpect.spawn(str(PHALANX), ["run", PRETEND, "--", LONG], cwd=str(tmp_path), timeout=30)
    child.expect("checkpoint of step")
    run_dir = only_run(tmp_path)
    child.close(force=False)  # the kernel sends SIGHUP, and writing fails from now on
    (finished,) = wait_for(lambda: events_of(run_dir, Kind.RUN_FINISHED), 20)
    assert finished.data["state"] == "stopped"
    stops = events_of(run_dir, Kind.STOP_REQUESTED)
    assert [event.data.get("now") for event in stops] == [None]


def test_ctrl_c_in_a_terminal_once(tmp_path: Path) -> None:
    child = pexpect.spawn(
        str(PHALANX),
        ["run", PRETEND, "-n", "2", "--", LONG],
        cwd=str(tmp_path),
        timeout=30,
        dimensions=(40, 100),
    )
    child.expect("running")
    child.expect(f"of {LONG}")  # the bar of the live view
    child.expect("checkpoint of step")
    child.sendintr()
    child.expect("stopped")
    child.expect("phalanx resume")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == ExitCode.INTERRUPTED


def test_ctrl_c_in_a_terminal_twice(tmp_path: Path) -> None:
    args = ["run", PRETEND, "--set", "failure.grace_s=200", "--", LONG, "--ignore-term"]
    child = pexpect.spawn(str(PHALANX), args, cwd=str(tmp_path), timeout=30, dimensions=(40, 100))
    child.expect("checkpoint of step")
    child.sendintr()
    child.expect("asked to stop by SIGINT")

    def asked_again() -> bool:  # signals that come within 0.1 s of each other are one request
        child.sendintr()
        return child.expect(["asked again", pexpect.TIMEOUT], timeout=1) == 0

    wait_for(asked_again, 20)
    child.expect("phalanx resume")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == ExitCode.INTERRUPTED


def test_the_launcher_is_killed(tmp_path: Path) -> None:
    run = Run(PRETEND, "-n", "2", "--", LONG, cwd=tmp_path)
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    run.signal(signal.SIGKILL)
    assert run.wait().code == ExitCode.KILLED
    finished = run.wait_event(Kind.RUN_FINISHED)
    assert finished.data["state"] == "stopped"
    wait_for(lambda: not phalanx("status", run.id, "--json").json["agent_alive"], 10)
    assert phalanx("status", run.id, "--json").json["state"] == "stopped"


def test_the_agent_is_killed_and_the_run_resumed(tmp_path: Path) -> None:
    run = Run(PRETEND, "-n", "2", "--", "400", cwd=tmp_path)
    run.wait_event(Kind.CHECKPOINT_COMMITTED)
    os.kill(run.agent_pid(), signal.SIGKILL)
    done = run.wait()
    assert done.code == ExitCode.INFRASTRUCTURE
    assert "killed by SIGKILL" in done.stdout
    assert f"phalanx resume {run.id}" in done.stdout
    assert len(run.events(Kind.AGENT_LOST)) == 1
    assert phalanx("status", run.id, "--json").json["state"] == "lost"
    again = phalanx("resume", run.id)
    assert again.code == 0, again.stderr
    assert "run resumed" in again.stdout
    assert "rank 0 started" in again.stdout
    assert again.stdout.count("round 1 started") == 0  # the first life is not told again
    starts = [event.data["start_step"] for event in run.events(Kind.TRAINING_STARTED)]
    assert starts[0] == 0 < starts[1]
    refused = phalanx("resume", run.id)
    assert refused.code == ExitCode.USAGE
    assert "already succeeded" in refused.stderr


@pytest.mark.parametrize("where", ["closed pipe", "full device"])
def test_a_run_outlives_whoever_reads_it(tmp_path: Path, where: str) -> None:
    if where == "closed pipe":
        run = Run(PRETEND, "--plain", "--", "60", cwd=tmp_path)
        run.close_stdout()
    else:
        stdout = os.open("/dev/full", os.O_WRONLY)
        run = Run(PRETEND, "--plain", "--", "60", cwd=tmp_path, stdout=stdout)
        os.close(stdout)
    done = run.wait()
    assert done.code == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert [event.data["state"] for event in run.events(Kind.RUN_FINISHED)] == ["succeeded"]


def test_stdout_that_was_never_open(tmp_path: Path) -> None:
    command = f"{PHALANX} run {PRETEND} -- 20 >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=30, check=False).returncode == 0
