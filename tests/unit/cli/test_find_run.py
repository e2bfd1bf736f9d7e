"""Making run directories, and finding them by what a person types."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from phalanx.cli import runs
from phalanx.contract import EVENTS_FILE, PLAN_FILE
from phalanx.errors import InfrastructureError, PhalanxError, UsageError
from phalanx.plan.model import Entrypoint, Plan, WorkerPlan

NOW = datetime(2026, 5, 4, 3, 2, 1)


def plan(job: str = "demo") -> Plan:
    return Plan(job, "0", Entrypoint("script", "/t.py"), "/", (WorkerPlan(0, 0, "localhost"),))


def make(name: str, made_s: int) -> Path:
    run_dir = runs.runs_dir() / name
    run_dir.mkdir(parents=True)
    (run_dir / PLAN_FILE).write_text(plan().to_json())
    os.utime(run_dir / PLAN_FILE, (made_s, made_s))
    return run_dir


@pytest.fixture
def three_runs() -> list[Path]:
    return [
        make("demo-20260101-000000-aaaa", 1),
        make("demo-20260102-000000-bbbb", 2),
        make("demo-long-20260103-000000-cccc", 3),
    ]


def test_create_writes_plan_and_job_file_and_leaves_nothing_else() -> None:
    run_dir = runs.create(plan(), NOW, "kind: TrainingJob\n")
    assert run_dir.stat().st_mode & 0o077 == 0, "its plan holds the environment of the job"
    assert run_dir.name.startswith("demo-20260504-030201-")
    assert runs.job_of(run_dir.name) == "demo"
    assert runs.read_plan(run_dir) == plan()
    assert (run_dir / runs.JOB_FILE_COPY).read_text() == "kind: TrainingJob\n"
    assert list(runs.runs_dir().iterdir()) == [run_dir]
    assert not (runs.create(plan(), NOW, "") / runs.JOB_FILE_COPY).exists()


def test_create_where_nothing_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "file"))
    with pytest.raises(InfrastructureError, match="cannot be made: Not a directory") as caught:
        runs.create(plan(), NOW, "")
    assert "PHALANX_HOME" in caught.value.hint


def test_create_on_a_full_disk_leaves_no_half_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InfrastructureError, match="No space left on device"):
        runs.create(plan(), NOW, "")
    assert list(runs.runs_dir().iterdir()) == []
    assert runs.all_runs() == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, 2),
        ("demo-20260101-000000-aaaa", 0),
        ("demo-20260101", 0),
        ("demo-2026010", None),
        ("demo", 1),  # a job's name beats the beginning of another
        ("demo-long", 2),
        ("demo-l", 2),
    ],
)
def test_find(three_runs: list[Path], text: str | None, found: int | None) -> None:
    if found is None:
        with pytest.raises(UsageError, match="beginning of 2 runs"):
            runs.find(text)
        return
    assert runs.find(text) == three_runs[found]


def test_find_by_path(three_runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.find(str(three_runs[0])) == three_runs[0]
    monkeypatch.chdir(three_runs[1])
    assert runs.find(".") == three_runs[1]
    with pytest.raises(UsageError, match="holds no run"):
        runs.find(f"{tmp_path}/")
    with pytest.raises(UsageError, match="does not exist"):
        runs.find("./nothing/here")


@pytest.mark.parametrize(
    ("text", "hint"), [("demo-lnog", "did you mean demo-long"), ("zzz", "phalanx list"), ("", "phalanx list")]
)
def test_find_nothing_names_what_is_near(three_runs: list[Path], text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        runs.find(text)
    assert hint in caught.value.hint


def test_without_a_home_there_are_no_runs() -> None:
    assert runs.all_runs() == []
    with pytest.raises(UsageError, match="there is no run in"):
        runs.find(None)
    with pytest.raises(UsageError, match="there is no run 'demo'"):
        runs.find("demo")


def test_half_made_runs_and_files_are_no_runs(three_runs: list[Path]) -> None:
    (runs.runs_dir() / ".new-demo").mkdir()
    (runs.runs_dir() / "a-file").write_text("")
    assert runs.all_runs() == list(reversed(three_runs))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', '{"version": 99}', '{"version": 1}', "[" * 100_000, "\x00"]
)
def test_a_broken_plan_is_one_message(text: str) -> None:
    run_dir = make("demo-20260101-000000-aaaa", 1)
    (run_dir / PLAN_FILE).write_text(text)
    with pytest.raises(PhalanxError, match=r"plan\.json"):
        runs.read_plan(run_dir)


def test_a_plan_that_is_not_text_is_one_message() -> None:
    run_dir = make("demo-20260101-000000-aaaa", 1)
    (run_dir / PLAN_FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="broken"):
        runs.read_plan(run_dir)
    (run_dir / PLAN_FILE).unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        runs.read_plan(run_dir)
    (run_dir / EVENTS_FILE).touch()
    assert runs.find(str(run_dir)) == run_dir
