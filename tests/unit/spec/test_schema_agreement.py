"""The JSON schema that editors use and the loader say the same of the same documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types of its own
import pytest
from ruamel.yaml import YAML

from phalanx.errors import SpecError
from phalanx.spec.load import load_job
from phalanx.spec.schema import DIALECT, JobFile, json_schema, schema_text

HEAD = "apiVersion: phalanx/v1\nkind: TrainingJob\nname: a\nentrypoint: train.py\n"

GOOD = (
    HEAD,
    HEAD + "args: [--lr, 0.1, 5]\nenv: {A: b, N: 5, _X1: ''}\n",
    HEAD + "workers: {count: 2, cpus: 1}\n",
    HEAD + "workers: {min: 2, max: 2}\n",
    HEAD + "workers: {}\ntrain: {}\ncheckpoint: {}\nfailure: {}\nlogs: {}\nargs: []\nenv: {}\n",
    HEAD + "train: {steps: 1e3, global_batch: 64.0, seed: 0, precision: float32, xla: false}\n",
    HEAD + "train: {steps: 0x10, seed: 4294967295}\n",
    HEAD + "checkpoint: {dir: ck, every_steps: 1, keep: 1}\nlogs: {dir: logs, tail_lines: 0}\n",
    HEAD + "failure: {max_restarts: 0, grace_s: 0, no_progress_rounds: 1}\n",
    HEAD.replace("train.py", "pkg.mod:main"),
    json.dumps({"apiVersion": "phalanx/v1", "kind": "TrainingJob", "name": "a-1", "entrypoint": "train.py"}),
)
BAD = (
    "hello",
    "[1]",
    HEAD.replace("phalanx/v1", "v1"),
    HEAD.replace("TrainingJob", "Job"),
    HEAD.replace("name: a\n", ""),
    HEAD.replace("name: a", "name: 5"),
    HEAD.replace("name: a", "name: A"),
    HEAD.replace("name: a", f"name: {'a' * 41}"),
    HEAD.replace("name: a", "name: a-"),
    HEAD.replace("train.py", '""'),
    HEAD + "volumes: []\n",
    HEAD + "args: --lr\n",
    HEAD + "args: [true]\n",
    HEAD + "args: [[a]]\n",
    HEAD + "args: [null]\n",
    HEAD + "env: [A=b]\n",
    HEAD + "env: {A: true}\n",
    HEAD + "env: {A: null}\n",
    HEAD + "env: {A-B: x}\n",
    HEAD + "env: {TF_CONFIG: x}\n",
    HEAD + "env: {PHALANX_WORKER_RANK: x}\n",
    HEAD + "workers: 2\n",
    HEAD + "workers: {count: 0}\n",
    HEAD + "workers: {count: 1025}\n",
    HEAD + "workers: {count: true}\n",
    HEAD + "workers: {min: 2}\n",
    HEAD + "workers: {count: 2, min: 2, max: 2}\n",
    HEAD + "workers: {cpus: 0.5}\n",
    HEAD + "train: {steps: 500 steps}\n",
    HEAD + "train: {steps: '500'}\n",
    HEAD + "train: {steps: 2.5}\n",
    HEAD + "train: {steps: null}\n",
    HEAD + "train: {seed: -1}\n",
    HEAD + "train: {precision: float16}\n",
    HEAD + "train: {xla: yes}\n",
    HEAD + "train: {xla: 1}\n",
    HEAD + "train: {stepz: 1}\n",
    HEAD + "train: null\n",
    HEAD + "checkpoint: {dir: ''}\n",
    HEAD + "checkpoint: {dir: 5}\n",
    HEAD + "checkpoint: {keep: 0}\n",
    HEAD + "failure: {grace_s: -1}\n",
    HEAD + "failure: {grace_s: soon}\n",
    HEAD + "logs: {tail_lines: 1001}\n",
)


def schema_accepts(text: str) -> bool:
    document = YAML(typ="safe", pure=True).load(text)
    return bool(jsonschema.Draft202012Validator(json_schema()).is_valid(document))


def loader_accepts(text: str, directory: Path) -> bool:
    path = directory / "job.yaml"
    path.write_text(text)
    try:
        load_job(path)
    except SpecError:
        return False
    return True


@pytest.mark.parametrize("text", GOOD)
def test_both_accept(text: str, directory: Path) -> None:
    assert schema_accepts(text)
    assert loader_accepts(text, directory)


@pytest.mark.parametrize("text", BAD)
def test_both_refuse(text: str, directory: Path) -> None:
    assert not schema_accepts(text)
    assert not loader_accepts(text, directory)


def test_schema_is_a_schema_of_its_draft() -> None:
    schema = json.loads(schema_text())
    assert schema["$schema"] == DIALECT == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def all_objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [schema, *schema["$defs"].values()]


def test_every_object_is_closed_and_every_key_described() -> None:
    schema = json_schema()
    assert len(all_objects(schema)) == 6
    for part in all_objects(schema):
        assert part["additionalProperties"] is False
        for key, rule in part["properties"].items():
            described = {**schema["$defs"].get(rule.get("$ref", "").rpartition("/")[2], {}), **rule}
            assert described["description"].endswith("."), key
            assert "title" not in rule


def test_bounds_stand_where_the_schema_language_has_them() -> None:
    steps = json_schema()["$defs"]["Train"]["properties"]["steps"]
    assert (steps["type"], steps["minimum"]) == ("integer", 1)
    assert set(json_schema()["properties"]) == set(JobFile.model_fields)
