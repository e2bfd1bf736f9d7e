"""`--set PATH=VALUE` is checked as the file is, and names itself as the place of what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.spec.job import JobSpec
from phalanx.spec.load import load_job

FILE = "args: [a]\nenv: {A: x}\ntrain: {steps: 10, seed: 1}\n"


@pytest.mark.parametrize(
    ("override", "read"),
    [
        ("train.steps=200", lambda spec: spec.train.steps == 200 and spec.train.seed == 1),
        ("train.steps=1e3", lambda spec: spec.train.steps == 1000),
        ("train.xla=true", lambda spec: spec.train.xla is True),
        ("train={steps: 5}", lambda spec: spec.train.steps == 5 and spec.train.seed is None),
        ("name=other", lambda spec: spec.name == "other"),
        ("name=yes", lambda spec: spec.name == "yes"),
        ("env.B=yes", lambda spec: spec.env == {"A": "x", "B": "yes"}),
        ("env.B=a: [b", lambda spec: spec.env["B"] == "a: [b"),
        ("env.B=", lambda spec: spec.env["B"] == ""),
        ("env.B=1=2", lambda spec: spec.env["B"] == "1=2"),
        ("env={}", lambda spec: spec.env == {}),
        ("args=[--lr, 0.10]", lambda spec: spec.args == ("--lr", "0.10")),
        ("args=[]", lambda spec: spec.args == ()),
        ("failure.grace_s=.5", lambda spec: spec.failure.grace_s == 0.5),
        ("workers.count=3", lambda spec: spec.workers.count == 3),
    ],
)
def test_override(override: str, read: Callable[[JobSpec], bool], job_file: Callable[[str], Path]) -> None:
    assert read(load_job(job_file(FILE), [override]).spec)


def test_the_last_one_of_a_path_wins(job_file: Callable[[str], Path]) -> None:
    spec = load_job(job_file(FILE), ["train.steps=5", "train.seed=9", "train.steps=6"]).spec
    assert (spec.train.steps, spec.train.seed) == (6, 9)


def test_a_path_is_relative_to_the_job_file(job_file: Callable[[str], Path]) -> None:
    path = job_file(FILE)
    assert load_job(path, ["checkpoint.dir=ck"]).spec.checkpoint.dir == str(path.parent / "ck")


def test_an_override_mends_a_wrong_value(job_file: Callable[[str], Path]) -> None:
    assert load_job(job_file("train: {steps: many}\n"), ["train.steps=5"]).spec.train.steps == 5
    assert load_job(job_file("train:\n"), ["train.steps=5"]).spec.train.steps == 5


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("train.steps", "is not PATH=VALUE"),
        ("=5", "is not PATH=VALUE"),
        ("train..steps=5", "is not PATH=VALUE"),
        ("args[0]=a", "is not PATH=VALUE"),
        ("train.steps=", "train.steps: has no value"),
        ("train.steps=abc", 'train.steps: "abc" is text'),
        ("train.steps=-1", "train.steps: -1 is too small"),
        ("train.xla=yes", 'train.xla: "yes" is text'),
        ("train.stepz=1", "train.stepz: there is no such key"),
        ("trian.steps=1", "trian: there is no such key"),
        ("train.steps.x=1", "train.steps.x: the job file has a plain value where this path goes on"),
        ("args.0=a", "args.0: the job file has a plain value where this path goes on"),
        ("name.x.y=1", "name.x.y: the job file has a plain value"),
        ("args=[a", "args: this is not YAML"),
        ("args=a", 'args: "a" is text'),
        ("args=[true]", "args[0]: true is a truth value"),
        ("args=*x", "args: *x is an alias"),
        ("train={steps: 1, steps: 2}", 'train: the key "steps" appears twice'),
        ("name=A", 'name: "A" is not allowed'),
        ("checkpoint.dir=", "checkpoint.dir: the text is empty"),
        ("env.A-B=1", "env.A-B: cannot be the name"),
        ("env.TF_CONFIG=1", "env.TF_CONFIG: is set by the agent"),
        ("env.A=\udcff", "no program can be given"),
        ("train.\udcff=1", "no program can be given"),
        ("env.\udcff=1", "no program can be given"),
    ],
)
def test_wrong_override_names_itself(override: str, what: str, message_of: Callable[..., str]) -> None:
    message = message_of(FILE, override)
    assert message.startswith("job.yaml has 1 problem\n\n--set "), message
    assert what in message.splitlines()[2]
    assert message.encode()


def test_a_long_override_is_cut(message_of: Callable[..., str]) -> None:
    assert len(message_of(FILE, f"train.steps={'9' * 1000}").splitlines()[2]) < 250
