"""The page about the job file is true: its examples load, its table is the schema's, its errors are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.cli.app import invoke
from phalanx.contract import ExitCode
from phalanx.spec.load import load_job
from phalanx.spec.schema import json_schema
from phalanx.spec.source import MAX_BYTES

PAGE = (Path(__file__).parents[3] / "docs" / "job-file.md").read_text()
BLOCKS = re.findall(r"^```(\w+)( wrong)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [text for language, wrong, text in BLOCKS if language == "yaml" and not wrong]
ROWS: list[tuple[str, str, str]] = re.findall(
    r"^\| (`[a-z].*?) \| (.*?) \| (.*?) \| .* \|$", PAGE, re.MULTILINE
)


def leaves() -> dict[str, dict[str, object]]:
    """The rule of every field, by its path."""
    rules = {}
    for key, rule in json_schema()["properties"].items():
        if "$ref" in rule:
            section = json_schema()["$defs"][rule["$ref"].rpartition("/")[2]]["properties"]
            rules.update({f"{key}.{name}": part for name, part in section.items()})
        else:
            rules[key] = rule
    return rules


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("text", EXAMPLES)
def test_example_loads(text: str, directory: Path) -> None:
    path = directory / "job.yaml"
    path.write_text(text)
    assert load_job(path).spec.name in text


def test_the_example_of_all_fields_has_all_fields(directory: Path) -> None:
    path = directory / "job.yaml"
    path.write_text(EXAMPLES[1])
    origins = load_job(path).provenance
    assert set(origins) == {
        path.replace("env", "env.DATA_DIR")
        for path in leaves()
        if path not in ("apiVersion", "kind", "workers.min", "workers.max")
    }
    assert "default" not in origins.values()


def test_the_table_names_every_field_once() -> None:
    named = [name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[0])]
    fields = [name for name in named if name in leaves()]
    assert fields == list(leaves())


def test_the_table_has_the_defaults_of_the_schema() -> None:
    for name, rule in leaves().items():
        if "default" in rule:
            assert told(name)[2].strip("`") == str(rule["default"]).removesuffix(".0").lower(), name


def test_the_table_has_the_bounds_of_the_schema() -> None:
    bounded = [name for name, rule in leaves().items() if "maximum" in rule]
    assert len(bounded) == 13
    for name in bounded:
        lowest, highest = told(name)[1].split(" to ")
        assert int(lowest) == leaves()[name]["minimum"]
        assert number(highest) == leaves()[name]["maximum"], name


def told(field: str) -> tuple[str, str, str]:
    """The row of the table that names `field`: names, type, default."""
    (row,) = [row for row in ROWS if f"`{field}`" in row[0]]
    return row


def number(text: str) -> int:
    """`2^31 - 1` as a number."""
    power, _, less = text.partition(" - ")
    base, _, exponent = power.partition("^")
    whole: int = int(base) ** int(exponent or 1)
    return whole - int(less or 0)


def test_the_shown_errors_are_what_the_command_prints(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (wrong,) = [text for _, is_wrong, text in BLOCKS if is_wrong]
    (shown,) = [text for language, _, text in BLOCKS if language == "text"]
    (directory / "job.yaml").write_text(wrong)
    monkeypatch.chdir(directory)
    assert invoke(["plan", "job.yaml"]) == ExitCode.USAGE
    assert capsys.readouterr().err == shown


def test_the_limit_is_the_stated_one() -> None:
    assert f"at most {MAX_BYTES // 1024} KiB" in PAGE
