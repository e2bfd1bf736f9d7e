"""A checkpoint is there whole or not at all, at whatever system call its writer dies."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint_samples import commit_steps, draft, names_in, some_arrays
from phalanx.checkpoint import fence, payload, retention, storage
from phalanx.checkpoint.commit import commit
from phalanx.checkpoint.store import Corrupt, newest_valid, step_name
from phalanx.errors import CheckpointError, FencedError

MANIFEST_WRITER = "phalanx.checkpoint.commit.write_durably"


def newest_step(directory: Path) -> int | None:
    def must_not(corrupt: Corrupt) -> None:
        pytest.fail(f"a reader met a broken checkpoint: {corrupt}")

    found = newest_valid(directory, must_not)
    return found.step if found else None


def test_what_is_committed_is_read_back(tmp_path: Path) -> None:
    done = commit(tmp_path / "new" / "dir", some_arrays(5), draft(5), None)
    assert done.path == tmp_path / "new" / "dir" / "step-000000005"
    found = payload.read(done.path / "state.safetensors")
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in some_arrays(5).items()
    }
    assert done.manifest.size_bytes == (done.path / "state.safetensors").stat().st_size
    assert [(entry.path, entry.dtype, entry.shape) for entry in done.manifest.variables] == [
        ("model/dense/bias", "float64", (3,)),
        ("model/dense/kernel", "float32", (4, 3)),
        ("optimizer/adam/iteration", "int64", ()),
    ]
    assert names_in(done.path.parent) == ["step-000000005"]


def test_the_same_step_again_is_committed_already(tmp_path: Path) -> None:
    (first,) = commit_steps(tmp_path, 5)
    again = commit(tmp_path, some_arrays(6), draft(5, round_number=2), None)
    assert again == first


def test_a_broken_one_of_the_same_step_makes_room(tmp_path: Path) -> None:
    (first,) = commit_steps(tmp_path, 5)
    os.truncate(first.path / "state.safetensors", 3)
    commit_steps(tmp_path, 5)
    assert newest_step(tmp_path) == 5
    assert [name[:22] for name in names_in(tmp_path)] == ["corrupt-step-000000005", "step-000000005"]


def test_a_writer_of_an_ended_round_commits_nothing(tmp_path: Path) -> None:
    token = fence.take(tmp_path, tmp_path / "run", 1)
    commit(tmp_path, some_arrays(1), draft(1), token)
    fence.take(tmp_path, tmp_path / "run", 2)
    with pytest.raises(FencedError):
        commit(tmp_path, some_arrays(2), draft(2), token)
    assert names_in(tmp_path) == ["step-000000001"]


def test_a_round_that_ends_during_the_write_is_fenced_at_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = fence.take(tmp_path, tmp_path / "run", 1)
    real = payload.write

    def write_slowly(file: Any, arrays: Any) -> tuple[int, str]:
        fence.take(tmp_path, tmp_path / "run", 2)
        return real(file, arrays)

    monkeypatch.setattr(payload, "write", write_slowly)
    with pytest.raises(FencedError, match="round 1 and now belongs to run round 2"):
        commit(tmp_path, some_arrays(1), draft(1), token)
    assert names_in(tmp_path) == []


class Dead(BaseException):
    """Stands for the death of the process: nothing that runs afterwards may touch the disk."""


class DyingSystem:
    """Counts the calls that change the disk and dies at one of them, before or after it took effect."""

    def __init__(self, dies_at: int, after: bool) -> None:
        self.calls: list[str] = []
        self._dies_at = dies_at
        self._after = after
        self._dead = False

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._dead:
                raise Dead(name)
            self.calls.append(name)
            self._dead = len(self.calls) == self._dies_at
            if self._dead and not self._after:
                raise Dead(name)
            result = real(*args, **kwargs)
            if self._dead:
                raise Dead(name)
            return result

        return call

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("rename", "fsync", "unlink", "rmdir"):
            patch.setattr(os, name, self.wrap(name, getattr(os, name)))
        patch.setattr(Path, "mkdir", self.wrap("mkdir", Path.mkdir))  # Python 3.10 does not look os.mkdir up
        patch.setattr(shutil, "rmtree", self.wrap("rmtree", shutil.rmtree))
        patch.setattr(payload, "write", self.wrap("write payload", payload.write))
        patch.setattr(MANIFEST_WRITER, self.wrap("write manifest", storage.write_durably))


CALLS = [
    "mkdir",  # the checkpoint directory, there already
    "mkdir",  # the temporary directory
    "write payload",
    "fsync",  # the payload
    "write manifest",
    "fsync",  # the manifest
    "fsync",  # the temporary directory
    "rename",
    "fsync",  # the checkpoint directory
]


def test_the_calls_that_change_the_disk_come_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = DyingSystem(dies_at=0, after=False)
    system.install(monkeypatch)
    commit(tmp_path, some_arrays(1), draft(1), None)
    assert system.calls == CALLS


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dies_at", range(1, len(CALLS) + 1))
def test_death_at_any_call_leaves_the_old_or_the_new(tmp_path: Path, dies_at: int, after: bool) -> None:
    commit_steps(tmp_path, 1)
    system = DyingSystem(dies_at, after)
    with pytest.MonkeyPatch.context() as patch:
        system.install(patch)
        with pytest.raises(Dead):
            commit(tmp_path, some_arrays(2), draft(2), None)
    renamed = dies_at > CALLS.index("rename") + (0 if after else 1)
    assert newest_step(tmp_path) == (2 if renamed else 1)
    retention.clean_leftovers(tmp_path)
    commit_steps(tmp_path, 2)
    assert newest_step(tmp_path) == 2
    assert names_in(tmp_path) == ["step-000000001", "step-000000002"]


@pytest.mark.parametrize("cut", ["payload", "manifest"])
def test_a_write_cut_in_the_middle_is_no_checkpoint(tmp_path: Path, cut: str) -> None:
    commit_steps(tmp_path, 1)
    (done,) = commit_steps(tmp_path / "other", 2)
    left = tmp_path / ".tmp-1-dead"
    shutil.copytree(done.path, left)
    os.truncate(left / ("state.safetensors" if cut == "payload" else "manifest.json"), 20)
    assert newest_step(tmp_path) == 1


REFUSALS = [
    (errno.ENOSPC, "No space left on device", "free space there"),
    (errno.EDQUOT, "quota exceeded", "quota"),
    (errno.EIO, "Input/output error", "kernel's log"),
    (errno.EROFS, "Read-only file system", "read-only"),
    (errno.EACCES, "Permission denied", "must be able to write"),
]


@pytest.mark.parametrize(("code", "words", "hint"), REFUSALS)
@pytest.mark.parametrize("call", sorted({name for name in CALLS if name != "mkdir"}))
def test_a_refusing_disk_is_told_in_words_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str, hint: str, call: str
) -> None:
    commit_steps(tmp_path, 1)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        if call in ("fsync", "rename"):
            patch.setattr(os, call, refuse)
        elif call == "write payload":
            patch.setattr(payload, "write", refuse)
        else:
            patch.setattr(MANIFEST_WRITER, refuse)
        with pytest.raises(CheckpointError) as caught:
            commit(tmp_path, some_arrays(2), draft(2), None)
    assert f"saving the checkpoint of step 2 failed in {tmp_path}" in caught.value.message
    assert words in caught.value.message
    assert hint in caught.value.hint
    assert ("bytes are free there" in caught.value.message) == (code not in (errno.EROFS, errno.EACCES))
    assert names_in(tmp_path) == ["step-000000001"]
    commit_steps(tmp_path, 2)
    assert newest_step(tmp_path) == 2


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(payload, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        commit(tmp_path, some_arrays(1), draft(1), None)
    assert names_in(tmp_path) == []


def test_a_variable_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'model/words' of dtype <U1"):
        commit(tmp_path, {"model/words": np.array(["a"])}, draft(1), None)
    assert names_in(tmp_path) == []


def test_step_names_sort_like_steps() -> None:
    steps = [0, 9, 10, 500, 999_999_999]
    assert sorted(step_name(step) for step in reversed(steps)) == [step_name(step) for step in steps]
