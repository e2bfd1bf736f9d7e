"""`phalanx plan`, `phalanx schema` and `phalanx init` print what they say they print."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from phalanx.cli.app import invoke
from phalanx.contract import ExitCode
from phalanx.plan.model import Plan
from phalanx.spec.load import load_job
from phalanx.spec.schema import schema_text

JOB = "apiVersion: phalanx/v1\nkind: TrainingJob\nname: a\nentrypoint: train.py\nworkers: {count: 2}\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return Path("job.yaml")


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert invoke(arguments) == ExitCode.SUCCESS
    return capsys.readouterr().out


def test_plan_says_what_would_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = output(capsys, "plan", str(job), "--set", "train.steps=20", "--set", "train.xla=true")
    rows = dict(line.split(None, 1) for line in told.splitlines()[:5])
    assert rows["job"] == "a"
    assert rows["runs"] == str(Path("train.py").absolute())
    assert rows["workers"].startswith("2, each with ")
    assert rows["train"] == "steps 20, float32, XLA, global batch, seed by the script"


def test_plan_as_json_is_the_stored_plan(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan.from_json(output(capsys, "plan", str(job), "--json"))
    assert plan.job == "a"
    assert plan.world_size == 2


def test_explain_names_the_line_of_every_value(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "plan", str(job), "--explain", "--set", "train.steps=20").splitlines()
    origins = {line.split()[0]: line for line in lines}
    assert origins["name"].endswith("  job.yaml:3")
    assert origins["workers.count"].endswith("  job.yaml:5")
    assert origins["train.steps"].endswith("  --set train.steps=20")
    assert origins["checkpoint.every_steps"].endswith("  default")
    rows = json.loads(output(capsys, "plan", str(job), "--explain", "--json"))["explain"]
    assert {"path": "workers.count", "value": 2, "origin": "job.yaml:5"} in rows


def test_dry_run_prints_the_processes(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = output(capsys, "plan", str(job), "--dry-run")
    assert [line for line in told.splitlines() if line.startswith("# ")][1:] == [
        "# agent",
        "# rank-0",
        "# rank-1",
    ]
    last = told.rstrip().rpartition("\n")[2]
    assert shlex.split(last)[1:] == [
        "-m",
        "phalanx.train.bootstrap",
        "script",
        str(Path("train.py").absolute()),
    ]
    assert "TF_CONFIG=" in told
    submission = json.loads(output(capsys, "plan", str(job), "--dry-run", "--json"))["submission"]
    assert [worker["name"] for worker in submission["workers"]] == ["rank-0", "rank-1"]


def test_plan_writes_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in Path().iterdir())
    output(capsys, "plan", str(job), "--dry-run", "--explain")
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_wrong_job_file_is_told_on_standard_error(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", str(job), "--set", "workers.count=-1", "--set", "train.stepz=5"]) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(
        "phalanx: job.yaml has 2 problems\n\n--set workers.count=-1: workers.count: "
    )


def test_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "schema") == schema_text()


def test_init_writes_a_job_that_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = output(capsys, "init", str(tmp_path / "My job" / "deep"))
    job = load_job(tmp_path / "My job" / "deep" / "job.yaml")
    assert job.spec.name == "deep"
    assert job.spec.workers.count == 2
    assert told.endswith(f"\n  phalanx run {shlex.quote(str(job.source))}\n")
    first_line = job.text.splitlines()[0]
    assert first_line == "# yaml-language-server: $schema=job.schema.json"
    assert (tmp_path / "My job" / "deep" / "job.schema.json").read_text() == schema_text()
    compile((tmp_path / "My job" / "deep" / "train.py").read_text(), "train.py", "exec")


def test_what_init_comments_out_is_right_too(tmp_path: Path) -> None:
    assert invoke(["init", str(tmp_path)]) == ExitCode.SUCCESS
    text = (tmp_path / "job.yaml").read_text()
    body = text[text.index("apiVersion") :]
    # A commented key, and only that, looks like `# key: value` at the start of its line.
    (tmp_path / "all.yaml").write_text(re.sub(r"^( *)# ( *[\w]+:)", r"\1\2", body, flags=re.MULTILINE))
    spec = load_job(tmp_path / "all.yaml").spec
    assert spec.workers.cpus == 4
    assert spec.train.precision == "mixed_bfloat16"
    assert spec.checkpoint.dir == str(tmp_path / "checkpoints")
    assert spec.failure.max_restarts == 10


@pytest.mark.parametrize("name", ["job.yaml", "train.py", "job.schema.json"])
def test_init_overwrites_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("mine")
    assert invoke(["init", str(tmp_path)]) == ExitCode.USAGE
    assert f"already has {name}; nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_init_into_what_is_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert invoke(["init", str(tmp_path / "file")]) == ExitCode.USAGE
    assert invoke(["init", str(tmp_path / "file" / "x")]) == ExitCode.USAGE
    assert capsys.readouterr().err.count("cannot be written: ") == 2
