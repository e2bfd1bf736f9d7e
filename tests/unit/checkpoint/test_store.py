"""Restoring takes the newest checkpoint that verifies; what does not is set aside with a reason in words."""

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint_samples import commit_steps, names_in, signed
from phalanx.checkpoint import store
from phalanx.checkpoint.store import Corrupt, list_committed, newest_valid, verify
from phalanx.errors import CheckpointError, IncompatibleError


def must_not(corrupt: Corrupt) -> None:
    pytest.fail(f"called corrupt: {corrupt}")


def damage(path: Path, kind: str) -> None:
    state, manifest = path / "state.safetensors", path / "manifest.json"
    if kind == "truncated":
        os.truncate(state, 50)
    elif kind == "too long":
        with state.open("ab") as file:
            file.write(b"x")
    elif kind == "flipped":
        raw = bytearray(state.read_bytes())
        raw[-1] ^= 1
        state.write_bytes(raw)
    elif kind == "no state":
        state.unlink()
    elif kind == "no manifest":
        manifest.unlink()
    elif kind == "empty manifest":
        manifest.write_text("")
    elif kind == "manifest not text":
        manifest.write_bytes(b"\xff\xfe")
    elif kind == "manifest changed":
        manifest.write_text(manifest.read_text().replace('"epoch": 1', '"epoch": 2'))
    elif kind == "other step":
        shutil.copy(path.parent / store.step_name(100) / "manifest.json", manifest)
    elif kind == "a file":
        shutil.rmtree(path)
        path.write_text("what is this")


DAMAGES = {
    "truncated": r"state.safetensors is truncated: 50 of \d+ bytes",
    "too long": "too long",
    "flipped": "do not match their checksum",
    "no state": "state.safetensors is missing",
    "no manifest": "manifest.json is missing",
    "empty manifest": "no JSON",
    "manifest not text": "not UTF-8",
    "manifest changed": "its own checksum",
    "other step": "the manifest says step 100, the directory's name step 200",
    "a file": "manifest.json is missing",
}


def test_no_directory_and_an_empty_one_hold_nothing(tmp_path: Path) -> None:
    assert newest_valid(tmp_path / "none", must_not) is None
    assert newest_valid(tmp_path, must_not) is None
    assert list_committed(tmp_path / "none") == ()


def test_the_newest_is_found_by_number_not_by_name(tmp_path: Path) -> None:
    commit_steps(tmp_path, 999_999_999, 5, 1_000_000_000)
    found = newest_valid(tmp_path, must_not)
    assert found is not None
    assert (found.step, found.path.name) == (1_000_000_000, "step-1000000000")
    assert found.manifest.data_position == {"epoch": 1}
    assert [entry.step for entry in list_committed(tmp_path)] == [5, 999_999_999, 1_000_000_000]


@pytest.mark.parametrize(("kind", "told"), DAMAGES.items())
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(
    tmp_path: Path, kind: str, told: str
) -> None:
    commit_steps(tmp_path, 100, 200)
    bad = tmp_path / store.step_name(200)
    damage(bad, kind)
    corrupt: list[Corrupt] = []
    found = newest_valid(tmp_path, corrupt.append)
    assert found is not None
    assert found.step == 100
    assert len(corrupt) == 1
    assert corrupt[0].path == bad
    assert corrupt[0].moved_to is not None
    assert corrupt[0].moved_to.exists()
    assert corrupt[0].moved_to.name.startswith("corrupt-step-000000200-")
    assert not bad.exists()
    assert re.search(told, corrupt[0].message)
    assert newest_valid(tmp_path, must_not) == found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_changed_byte_anywhere_is_seen(tmp_path_factory: Any, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("c")
    (committed,) = commit_steps(directory, 3)
    file = committed.path / data.draw(st.sampled_from(["state.safetensors", "manifest.json"]))
    raw = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    file.write_bytes(raw)
    try:
        assert verify(committed.path) == committed.manifest  # white space of the manifest
    except CheckpointError:
        return
    assert file.name == "manifest.json"


def test_all_damaged_is_none(tmp_path: Path) -> None:
    for committed in commit_steps(tmp_path, 1, 2, 3):
        damage(committed.path, "flipped")
    corrupt: list[Corrupt] = []
    assert newest_valid(tmp_path, corrupt.append) is None
    assert [entry.path.name for entry in corrupt] == [store.step_name(step) for step in (3, 2, 1)]


def test_a_directory_that_cannot_be_written_still_skips_the_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_steps(tmp_path, 1, 2)
    damage(tmp_path / store.step_name(2), "truncated")

    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "rename", refuse)
    corrupt: list[Corrupt] = []
    found = newest_valid(tmp_path, corrupt.append)
    assert found is not None
    assert found.step == 1
    assert [entry.moved_to for entry in corrupt] == [None]


def test_another_rank_sets_it_aside_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit_steps(tmp_path, 1, 2)
    damage(tmp_path / store.step_name(2), "flipped")
    real = os.rename

    def lose_the_race(source: Path, target: Path) -> None:
        real(source, f"{target}-by-the-other")
        real(source, target)

    monkeypatch.setattr(os, "rename", lose_the_race)
    found = newest_valid(tmp_path, must_not)
    assert found is not None
    assert found.step == 1


def test_a_checkpoint_that_goes_while_it_is_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_steps(tmp_path, 1, 2)
    listed = store.committed_steps(tmp_path)
    shutil.rmtree(tmp_path / store.step_name(2))
    monkeypatch.setattr(store, "committed_steps", lambda directory: listed)
    found = newest_valid(tmp_path, must_not)
    assert found is not None
    assert found.step == 1
    assert [entry.step for entry in list_committed(tmp_path)] == [1]


def test_a_disk_error_counts_as_damage_and_other_errors_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_steps(tmp_path, 1, 2)
    real = verify
    code = errno.EIO

    def verify_or_fail(path: Path) -> Any:
        if path.name == store.step_name(2):
            raise OSError(code, "as injected")
        return real(path)

    monkeypatch.setattr(store, "verify", verify_or_fail)
    corrupt: list[Corrupt] = []
    code = errno.EACCES
    with pytest.raises(CheckpointError, match="Permission denied"):
        newest_valid(tmp_path, corrupt.append)
    assert corrupt == []
    code = errno.EIO
    found = newest_valid(tmp_path, corrupt.append)
    assert found is not None
    assert found.step == 1
    assert "Input/output error" in corrupt[0].message


def test_a_checkpoint_of_a_newer_phalanx_is_neither_used_nor_set_aside(tmp_path: Path) -> None:
    commit_steps(tmp_path, 1, 2)
    manifest = tmp_path / store.step_name(2) / "manifest.json"
    manifest.write_text(signed({**json.loads(manifest.read_text()), "format_version": 2}))
    with pytest.raises(IncompatibleError, match="format 2"):
        newest_valid(tmp_path, must_not)
    assert names_in(tmp_path) == [store.step_name(1), store.step_name(2)]
    assert "format 2" in list_committed(tmp_path)[1].problem


def test_the_listing_judges_cheaply_and_says_what_is_wrong(tmp_path: Path) -> None:
    commit_steps(tmp_path, 1, 2, 3)
    damage(tmp_path / store.step_name(2), "truncated")
    damage(tmp_path / store.step_name(3), "no manifest")
    one, two, three = list_committed(tmp_path)
    assert one.manifest is not None
    assert (one.step, one.manifest.step, one.problem) == (1, 1, "")
    assert two.manifest is None
    assert "truncated" in two.problem
    assert three.problem == "manifest.json is missing"


def test_names_that_are_no_checkpoints_are_left_alone(tmp_path: Path) -> None:
    commit_steps(tmp_path, 7)
    for name in (
        "step-7",
        "step-0000000070",
        "step-000000008.bak",
        ".tmp-1-x",
        "corrupt-step-000000009-a",
        "notes",
    ):
        (tmp_path / name).mkdir()
    assert [step for step, _ in store.committed_steps(tmp_path)] == [7]
    before = names_in(tmp_path)
    assert newest_valid(tmp_path, must_not) is not None
    assert names_in(tmp_path) == before


def test_a_file_in_place_of_the_directory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="listing checkpoints failed"):
        newest_valid(tmp_path / "file", must_not)
