"""Job files that are broken at random give a valid job or a SpecError, never anything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.cli.app import invoke
from phalanx.contract import ExitCode
from phalanx.errors import SpecError
from phalanx.plan.make import make_plan
from phalanx.plan.model import Plan
from phalanx.spec.load import load_job

MUTATIONS = 500
ON_THE_COMMAND_LINE = 60

VALID = (
    """\
# A job with all that there is
apiVersion: phalanx/v1
kind: TrainingJob
name: credit-risk
entrypoint: train.py
args: [--lr, 0.10, "--name=a b", 'it''s']
env:
  DATA: /data
  TEXT: |
    two
    lines
workers:
  count: 4 # processes
  cpus: 2
train:
  steps: 1000
  global_batch: 64
  seed: 7
  precision: mixed_bfloat16
  xla: true
checkpoint:
  dir: checkpoints
  every_steps: 100
  keep: 3
failure: {max_restarts: 5, grace_s: 2.5, no_progress_rounds: 2}
logs: {dir: logs, tail_lines: 20}
""",
    '{"apiVersion": "phalanx/v1", "kind": "TrainingJob", "name": "a", "entrypoint": "train.py",\n'
    ' "workers": {"min": 2, "max": 2}, "train": {"steps": 1e3}, "args": ["-v"], "env": {"A": "b"}}\n',
    "apiVersion: phalanx/v1\r\nkind: TrainingJob\r\nname: b\r\nentrypoint: pkg.train:main\r\nworkers: {}\r\n",
)
NASTY = "\t\n\r :-?[]{},#&*!|>'\"%@`~<=\\/.$0_\x00\x1b\x7f\x85\xa0\u2028\ufeff\ud7ff\ue000\uffff\U0001f600"
VALUES = (
    *("", "~", "null", "yes", "True", "0", "-1", "1_000", "010", "0x1F", "0o7", "1e999", "9" * 400, ".nan"),
    *("-.inf", "500 steps", '"', "'", "''", '"\\u0000"', '"\\ud800"', '"\\Uffffffff"', "[", "[]", "{", "{}"),
    *("[[[[]]]]", "*a", "&a", "!!str", "!!python/name:os.system", "<<", "? a", "- a", "|", ">-", "a: b"),
    *("${HOME}", "~nobody/x", "\u202e", "2024-01-01", "1:30", "../..", "/", "[" * 300, "{a: " * 300),
    *("--- a", "...", "%YAML 1.1", "@a", "`a", "5", "8", "train.py", "some-name", "2.0", "[x]", "a" * 5000),
)  # fmt: skip
KEYS = (
    "",
    "name",
    "train",
    "workers",
    "<<",
    "apiVersion",
    "Train",
    "\u00e9",
    "-",
    "1",
    "null",
    "[a]",
    "{a: b}",
    '"',
    "*a",
)


def insert_character(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(NASTY) + text[at:]


def delete_characters(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.choice((1, 1, 2, 40)) :]


def replace_character(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(NASTY) + text[at + 1 :]


def change_lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(5)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(other, lines[at])
    elif change == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif change == 3:
        lines[at] = rng.choice((" ", "  ", "\t", "- ", "# ", "? ")) + lines[at]
    else:
        lines[at] = lines[at].lstrip()
    return "".join(lines)


def replace_value(rng: random.Random, text: str) -> str:
    lines = text.splitlines()
    at = rng.choice([number for number, line in enumerate(lines) if ":" in line])
    lines[at] = f"{lines[at].partition(':')[0]}: {rng.choice(VALUES)}"
    return "\n".join(lines)


def replace_key(rng: random.Random, text: str) -> str:
    lines = text.splitlines()
    at = rng.choice([number for number, line in enumerate(lines) if ":" in line])
    key, _, value = lines[at].partition(":")
    indent = key[: len(key) - len(key.lstrip())]
    lines[at] = f"{indent}{rng.choice(KEYS)}:{value}"
    return "\n".join(lines)


TEXT_MUTATIONS: tuple[Callable[[random.Random, str], str], ...] = (
    insert_character,
    delete_characters,
    replace_character,
    change_lines,
    replace_value,
    replace_value,
    replace_key,
)


def mutated(seed: int) -> bytes:
    """A valid job file with one or two changes; every eighth time bytes are changed after that."""
    rng = random.Random(seed)
    text = rng.choice(VALID)
    for _ in range(rng.choice((1, 1, 1, 2))):
        text = rng.choice(TEXT_MUTATIONS)(rng, text or VALID[0])
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    if seed % 8 == 0:
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def outcome(path: Path, seed: int) -> str:
    """What loading a mutated file comes to; anything but a job and a SpecError fails the test."""
    path.write_bytes(mutated(seed))
    try:
        job = load_job(path)
    except SpecError as error:
        told = str(error)
    else:
        plan = make_plan(job.spec, cores=8)
        assert Plan.from_json(plan.to_json()) == plan, f"seed {seed}"
        return "read"
    assert str(path) in told, f"seed {seed}"
    assert "Traceback" not in told, f"seed {seed}"
    assert told.encode(), f"seed {seed}"
    return "refused"


@pytest.mark.parametrize("part", range(5))
def test_mutated_files_give_a_job_or_a_spec_error(part: int, directory: Path) -> None:
    share = MUTATIONS // 5
    outcomes = [outcome(directory / "job.yaml", seed) for seed in range(part * share, (part + 1) * share)]
    # Both happen, so the mutations are neither too mild nor too wild to find anything.
    assert outcomes.count("read") > share // 20
    assert outcomes.count("refused") > share // 2


def test_mutated_files_on_the_command_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / "job.yaml"
    codes = set()
    for seed in range(ON_THE_COMMAND_LINE):
        path.write_bytes(mutated(seed))
        code = invoke(["plan", str(path)])
        codes.add(code)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err, f"seed {seed}"
        assert printed.err.startswith("phalanx: ") == (code == ExitCode.USAGE), f"seed {seed}"
    assert codes == {ExitCode.SUCCESS, ExitCode.USAGE}


def test_mutated_overrides_give_a_job_or_a_spec_error(job_file: Callable[[], Path]) -> None:
    rng = random.Random(7)
    path = job_file()
    keys = (
        "train.steps",
        "name",
        "env.A",
        "args",
        "workers",
        "x.y",
        "",
        "apiVersion",
        "train",
        "a[0]",
        "env.",
        "env",
    )
    for _ in range(200):
        override = f"{rng.choice(keys)}{rng.choice(('=', '=', '=', '', '=='))}{rng.choice(VALUES)}"
        told = "--set"
        try:
            load_job(path, [override])
        except SpecError as error:
            told = error.message
        assert "--set" in told, override
