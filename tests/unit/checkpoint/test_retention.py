"""The last N stay, the newest valid one always, and what dead writers left goes."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_samples import commit_steps, names_in
from phalanx.checkpoint import retention
from phalanx.checkpoint.store import list_committed, newest_valid, step_name
from phalanx.errors import CheckpointError


@settings(max_examples=25, deadline=None)
@given(steps=st.sets(st.integers(0, 3_000_000_000), min_size=1, max_size=6), keep=st.integers(1, 7))
def test_the_newest_stay_in_whatever_order_they_came(
    tmp_path_factory: pytest.TempPathFactory, steps: set[int], keep: int
) -> None:
    directory = tmp_path_factory.mktemp("c")
    for step in steps:
        (directory / step_name(step)).mkdir()
    ordered = sorted(steps)
    gone = retention.prune(directory, keep, directory / step_name(ordered[-1]))
    assert gone == [directory / step_name(step) for step in ordered[:-keep]]
    assert [entry.step for entry in list_committed(directory)] == ordered[-keep:]


def test_the_newest_valid_stays_behind_newer_names(tmp_path: Path) -> None:
    old = commit_steps(tmp_path, 1, 2, 3)
    for step in (8, 9):
        (tmp_path / step_name(step)).mkdir()
    assert retention.prune(tmp_path, 2, old[2].path) == [old[0].path, old[1].path]
    found = newest_valid(tmp_path, lambda corrupt: None)
    assert found is not None
    assert found.step == 3


def test_leftovers_go_and_the_rest_stays(tmp_path: Path) -> None:
    commit_steps(tmp_path, 1)
    for name in (".tmp-1-aa", ".tmp-12-bb", ".trash-step-000000001-cc", "corrupt-step-000000003-dd"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    gone = retention.clean_leftovers(tmp_path)
    assert [path.name for path in gone] == [".tmp-1-aa", ".tmp-12-bb", ".trash-step-000000001-cc"]
    assert names_in(tmp_path) == ["corrupt-step-000000003-dd", "step-000000001"]


def test_no_directory_has_no_leftovers(tmp_path: Path) -> None:
    assert retention.clean_leftovers(tmp_path / "none") == []


def test_a_removal_that_is_cut_short_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = commit_steps(tmp_path, 1, 2)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            retention.prune(tmp_path, 1, committed[1].path)
    assert [entry.step for entry in list_committed(tmp_path)] == [2]
    assert len(retention.clean_leftovers(tmp_path)) == 1
    assert names_in(tmp_path) == ["step-000000002"]


def test_a_refused_removal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = commit_steps(tmp_path, 1, 2)

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(CheckpointError, match="removing an old checkpoint failed"):
        retention.prune(tmp_path, 1, committed[1].path)
