"""A manifest survives its round trip, and nothing in it can change unseen."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_samples import draft, signed
from phalanx.checkpoint.manifest import FileEntry, Manifest, VariableEntry
from phalanx.errors import CheckpointError, IncompatibleError

FULL = replace(
    draft(500),
    files=(FileEntry("state.safetensors", 100, "0" * 64), FileEntry("more", 11, "f" * 64)),
    variables=(VariableEntry("model/a", "float32", (2, 3)), VariableEntry("model/b", "int64", ())),
    data_position={"epoch": 3, "nested": {"list": [1, 2.5, None, True, "é"]}},
)


def test_round_trip() -> None:
    assert Manifest.from_json(FULL.to_json()) == FULL
    assert FULL.size_bytes == 111


def test_the_same_manifest_gives_the_same_text() -> None:
    assert replace(FULL).to_json() == FULL.to_json()


@settings(max_examples=300, deadline=None)
@given(position=st.integers(0, len(FULL.to_json().encode()) - 1), mask=st.integers(1, 255))
def test_a_changed_byte_never_changes_the_meaning(position: int, mask: int) -> None:
    raw = bytearray(FULL.to_json().encode())
    raw[position] ^= mask
    try:
        text = raw.decode()
        found = Manifest.from_json(text)
    except (UnicodeDecodeError, CheckpointError):
        return
    assert found == FULL  # white space became other white space


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_a_truncated_manifest_is_broken(cut: int) -> None:
    with pytest.raises(CheckpointError, match="manifest is broken"):
        Manifest.from_json(FULL.to_json()[:cut])


@pytest.mark.parametrize("text", ["null", "[]", "3", "[" * 100_000])
def test_other_json_is_no_manifest(text: str) -> None:
    with pytest.raises(CheckpointError, match="manifest is broken"):
        Manifest.from_json(text)


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": True},
        {"step": "5"},
        {"world_size": 1.0},
        {"job": None},
        {"data_position": []},
        {"seed": "x"},
        {"versions": {"a": 1}},
        {"files": {}},
        {"files": [{"name": "a", "size_bytes": 1}]},
        {"files": [{"name": "../a", "size_bytes": 1, "sha256": "0" * 64}]},
        {"files": [{"name": "..", "size_bytes": 1, "sha256": "0" * 64}]},
        {"files": [{"name": "a", "size_bytes": 1, "sha256": "0"}]},
        {"variables": [{"path": "a", "dtype": "f", "shape": [-1]}]},
        {"variables": [3]},
        {"extra": 1},
    ],
)
def test_wrong_values_are_refused_even_with_a_right_checksum(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="manifest is broken"):
        Manifest.from_json(signed({**json.loads(FULL.to_json()), **change}))


def test_a_missing_field_is_named() -> None:
    raw = json.loads(FULL.to_json())
    del raw["round"]
    with pytest.raises(CheckpointError, match="round"):
        Manifest.from_json(signed(raw))


def test_a_newer_format_is_not_called_broken() -> None:
    with pytest.raises(IncompatibleError, match="has format 2; this Phalanx reads format 1"):
        Manifest.from_json(signed({**json.loads(FULL.to_json()), "format_version": 2}))


def test_a_data_position_that_is_not_json_is_the_writers_error() -> None:
    with pytest.raises(TypeError):
        replace(FULL, data_position={"a": object()}).to_json()
    with pytest.raises(ValueError):
        replace(FULL, data_position={"a": float("nan")}).to_json()
