"""A valid job file means what it says, and every value knows where it came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.errors import SpecError
from phalanx.spec.job import (
    CheckpointSpec,
    EntrypointSpec,
    FailureSpec,
    JobSpec,
    LogsSpec,
    TrainSpec,
    WorkersSpec,
)
from phalanx.spec.load import job_from_script, load_job

WriteJob = Callable[..., Path]

WHOLE = """\
apiVersion: phalanx/v1
kind: TrainingJob
name: credit-risk
entrypoint: train.py
args: [--lr, 0.10, "0x1F", 0x1F, --name=a b]
env: {DATA: /data, OMP_NUM_THREADS: 04, EMPTY: ""}
workers: {count: 4, cpus: 2}
train:
  steps: 1e3
  global_batch: 64.0
  seed: 0x10
  precision: mixed_bfloat16
  xla: True
checkpoint: {dir: ../ck, every_steps: 100, keep: 1}
failure: {max_restarts: 0, grace_s: 2.5, no_progress_rounds: 1}
logs: {dir: /var/log/jobs, tail_lines: 0}
"""


def test_every_field_is_read(job_file: WriteJob) -> None:
    path = job_file(text=WHOLE)
    job = load_job(path)
    assert job.spec == JobSpec(
        name="credit-risk",
        entrypoint=EntrypointSpec("script", str(path.parent / "train.py")),
        working_dir=str(path.parent),
        args=("--lr", "0.10", "0x1F", "0x1F", "--name=a b"),
        env={"DATA": "/data", "OMP_NUM_THREADS": "04", "EMPTY": ""},
        workers=WorkersSpec(4, 2),
        train=TrainSpec(1000, 64, 16, "mixed_bfloat16", True),
        checkpoint=CheckpointSpec(str(path.parent.parent / "ck"), 100, 1),
        failure=FailureSpec(0, 2.5, 1),
        logs=LogsSpec("/var/log/jobs", 0),
    )
    assert job.source == path
    assert job.text == WHOLE


def test_four_keys_are_a_job(job_file: WriteJob) -> None:
    spec = load_job(job_file()).spec
    assert spec.workers == WorkersSpec(1, None)
    assert spec.train == TrainSpec()
    assert spec.checkpoint == CheckpointSpec(None, 500, 5)
    assert spec.failure == FailureSpec()
    assert spec.logs == LogsSpec()


def test_provenance_names_line_override_and_default(
    job_file: WriteJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = job_file("train:\n  steps: 10\nenv:\n  A: x\nworkers: {min: 2, max: 2}\n")
    monkeypatch.chdir(path.parent)
    origin = load_job(Path("job.yaml"), ["train.seed=3", "env.B=y"]).provenance
    assert origin["name"] == "job.yaml:3"
    assert origin["train.steps"] == "job.yaml:6"
    assert origin["env.A"] == "job.yaml:8"
    assert origin["workers.count"] == "job.yaml:9"
    assert origin["train.seed"] == "--set train.seed=3"
    assert origin["env.B"] == "--set env.B=y"
    assert origin["checkpoint.keep"] == origin["args"] == "default"


@pytest.mark.parametrize(
    ("entrypoint", "kind"),
    [
        ("train.py", "script"),
        ("./train.py", "script"),
        ("pkg.train:main", "function"),
        ("m:A.run", "function"),
    ],
)
def test_entrypoint_is_a_script_or_a_function(job_file: WriteJob, entrypoint: str, kind: str) -> None:
    path = job_file(f"entrypoint: {entrypoint}\n", "apiVersion: phalanx/v1\nkind: TrainingJob\nname: a\n")
    target = entrypoint if kind == "function" else str(path.parent / "train.py")
    assert load_job(path).spec.entrypoint == EntrypointSpec(kind, target)


def test_home_directory_is_expanded(job_file: WriteJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert load_job(job_file("checkpoint: {dir: ~/ck}\n")).spec.checkpoint.dir == "/home/ada/ck"


# (lines, what the message says, what the remedy says)
RULES = {
    "kind": ("kind: Job\n", 'kind: "Job" is not allowed', "write `TrainingJob`"),
    "version": ("apiVersion: v1\n", 'apiVersion: "v1" is not allowed', "write `phalanx/v1`"),
    "name with capitals": ("name: Credit\n", 'name: "Credit" is not allowed', "up to 40 lower-case letters"),
    "name with dot": ("name: a.b\n", "is not allowed", "lower-case"),
    "name ends in dash": ("name: a-\n", "is not allowed", "no dash at the end"),
    "long name": (f"name: {'a' * 41}\n", "is not allowed", "up to 40"),
    "name is a number": ("name: 12\n", "name: 12 is a number", 'quote it: "12"'),
    "no such script": ("entrypoint: trian.py\n", '"trian.py": there is no such file', "mean train.py?"),
    "script is a directory": ("entrypoint: .\n", "is not a file", "name a Python script"),
    "script below a file": ("entrypoint: train.py/x\n", "there is no such file", "name a Python script"),
    "no module": ("entrypoint: my-module:main\n", "there is no such file", "`module:function`"),
    "long script name": (f"entrypoint: {'a' * 300}\n", "File name too long", "name a Python script"),
    "script of two lines": ('entrypoint: "a\\nb"\n', "holds a control character", "one line"),
    "unknown key": ("worker: {count: 2}\n", "worker: there is no such key", "did you mean `workers`?"),
    "nested unknown key": ("train: {batch: 2}\n", "train.batch: there is", "did you mean `global_batch`?"),
    "far unknown key": ("volumes: []\n", "volumes: there is no such key", "keys of a job file: api"),
    "agent's variable": ("env: {TF_CONFIG: x}\n", "env.TF_CONFIG: is set by the agent", "not TF_CONFIG"),
    "worker's variable": ("env: {PHALANX_WORKER_RANK: 1}\n", "is set by the agent", "PHALANX_..."),
    "name of variable": ("env: {A-B: x}\n", "env.A-B: cannot be the name", "letters, digits and underscores"),
    "elastic": ("workers: {min: 1, max: 2}\n", "2 is not equal to workers.min, 1", "write `count: 2`"),
    "only min": ("workers: {min: 2}\n", "workers.max: is missing", "write both, or count"),
    "count and max": ("workers: {count: 2, max: 2}\n", "workers.max: does not go with", "write count"),
    "small batch": ("workers: {count: 4}\ntrain: {global_batch: 3}\n", "3 examples are too few", "4 or"),
    "precision": ("train: {precision: float16}\n", '"float16" is not allowed', "one of float32, mixed_b"),
    "variable in path": ("checkpoint: {dir: $HOME/ck}\n", "variables are not expanded", "the path itself"),
    "unknown home": ("logs: {dir: ~nobody-of-that-name/l}\n", "directory is not known", "the path itself"),
    "directory is a file": ("checkpoint: {dir: train.py}\n", '"train.py" is a file', "name a directory"),
    "long directory": (f"logs: {{dir: {'a' * 300}}}\n", "File name too long", "another directory"),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_rule_gives_one_message(rule: str, message_of: Callable[..., str]) -> None:
    lines, what, fix = RULES[rule]
    key = lines.partition(":")[0]
    rest = "".join(
        f"{line}\n"
        for line in ("apiVersion: phalanx/v1", "kind: TrainingJob", "name: a", "entrypoint: train.py")
        if not line.startswith(f"{key}:")
    )
    message = message_of(lines, text=rest)
    assert message.startswith("job.yaml has 1 problem\n\njob.yaml:"), message
    assert what in message
    assert fix in message.rpartition("\n")[2]


def test_all_problems_are_told_in_the_order_of_the_file(message_of: Callable[..., str]) -> None:
    message = message_of(
        "trian: {}\nargs: *a\nworkers: {count: -1}\n", "train.steps=x", text="kind: Job\nname: A\n"
    )
    assert message.startswith("job.yaml has 8 problems")
    places = [line.split(": ")[0] for line in message.splitlines() if line.startswith(("job.yaml:", "--set"))]
    assert places == [
        "--set train.steps=x",
        "job.yaml:1:1",
        "job.yaml:1:1",
        "job.yaml:1:7",
        "job.yaml:2:7",
        "job.yaml:3:1",
        "job.yaml:4:7",
        "job.yaml:5:18",
    ]


def test_a_misspelt_key_is_not_also_missing(message_of: Callable[..., str]) -> None:
    message = message_of(text="apiVersion: phalanx/v1\nkind: TrainingJob\nnaem: a\nentrypoint: train.py\n")
    assert message.startswith("job.yaml has 1 problem\n\njob.yaml:3:1: naem: there is no such key")


def test_the_excerpt_underlines_the_value(message_of: Callable[..., str]) -> None:
    lines = message_of("workers: {count: two}\n").splitlines()
    assert lines[3:5] == ["     5 | workers: {count: two}", "       |                  ^^^"]


def test_a_long_line_is_cut_around_the_value(message_of: Callable[..., str]) -> None:
    lines = message_of(f"args: [{'a, ' * 500}true, {'b, ' * 500}]\n").splitlines()
    assert len(lines[3]) < 110
    column = lines[4].index("^")
    assert lines[3][column : column + 4] == "true"


def test_only_so_many_problems_are_shown(message_of: Callable[..., str]) -> None:
    message = message_of(f"args: [{'true, ' * 30}]\n")
    assert message.startswith("job.yaml has 30 problems")
    assert message.endswith("and 10 more")


def test_no_escape_reaches_the_terminal(message_of: Callable[..., str]) -> None:
    message = message_of('name: "\\e[31mred\\u202e"\n', text="apiVersion: phalanx/v1\nkind: TrainingJob\n")
    assert "\x1b" not in message
    assert "\u202e" not in message
    assert r"\x1b[31mred" in message


def test_script_without_job_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    job = job_from_script(Path("train.py"), 4, ["--lr", "yes", "{"], ["train.steps=20"])
    assert job.spec.name == "train"
    assert job.spec.entrypoint == EntrypointSpec("script", str(directory / "train.py"))
    assert job.spec.working_dir == str(directory)
    assert job.spec.args == ("--lr", "yes", "{")
    assert job.spec.workers.count == 4
    assert job.spec.train.steps == 20
    assert job.source is None
    assert job.text == ""
    assert job.provenance["workers.count"] == "-n 4"
    assert job.provenance["entrypoint"] == "the script train.py"
    assert job.provenance["train.steps"] == "--set train.steps=20"


@pytest.mark.parametrize(
    ("script", "name"),
    [("My_Train2.py", "my-train2"), ("01-fit.py", "fit"), ("\u00e9.py", "job"), (f"{'a' * 50}.py", "a" * 40)],
)
def test_name_follows_from_the_script(script: str, name: str, tmp_path: Path) -> None:
    (tmp_path / script).touch()
    assert job_from_script(tmp_path / script, 1).spec.name == name


def test_function_without_job_file() -> None:
    spec = job_from_script(Path("pkg.train:main"), 1).spec
    assert spec.entrypoint == EntrypointSpec("function", "pkg.train:main")
    assert spec.name == "train"


def test_wrong_command_line_names_its_place(directory: Path) -> None:
    with pytest.raises(SpecError) as caught:
        job_from_script(directory / "train.py", 0, [], ["train.steps=x"])
    assert caught.value.message.startswith("the command line has 2 problems")
    assert "\n-n 0: workers.count: 0 is too small\n" in caught.value.message
    assert '\n--set train.steps=x: train.steps: "x" is text\n' in caught.value.message
    with pytest.raises(SpecError, match=r"the script .*none\.py: entrypoint: .*there is no such file"):
        job_from_script(directory / "none.py", 1)
    with pytest.raises(SpecError, match=r"the arguments after --: args\[0\]: .*no program"):
        job_from_script(directory / "train.py", 1, ["a\udcff"])
