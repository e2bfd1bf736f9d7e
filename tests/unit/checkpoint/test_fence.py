"""Only the newest round that took the fence may commit, and no run takes a directory from a living one."""

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.checkpoint import fence
from phalanx.contract import AGENT_LOCK
from phalanx.errors import CheckpointBusyError, CheckpointError, FencedError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "checkpoints"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "one"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def living_run(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "runs" / "alive"
    path.mkdir(parents=True)
    with (path / AGENT_LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def test_the_newest_token_passes_and_an_earlier_one_does_not(directory: Path, run_dir: Path) -> None:
    first = fence.take(directory, run_dir, 1)
    fence.check(directory, first)
    second = fence.take(directory, run_dir, 2)
    fence.check(directory, second)
    with pytest.raises(FencedError, match=r"taken for one round 1 and now belongs to one round 2"):
        fence.check(directory, first)
    with pytest.raises(FencedError), fence.holding(directory, first):
        pytest.fail("an old writer got in")


def test_taking_the_same_round_again_voids_the_token(directory: Path, run_dir: Path) -> None:
    first = fence.take(directory, run_dir, 1)
    assert fence.take(directory, run_dir, 1) != first
    with pytest.raises(FencedError):
        fence.check(directory, first)


def test_a_living_run_keeps_its_directory(directory: Path, run_dir: Path, living_run: Path) -> None:
    token = fence.take(directory, living_run, 3)
    with pytest.raises(CheckpointBusyError, match=r"belongs to the run alive, which is running") as caught:
        fence.take(directory, run_dir, 1)
    assert "phalanx cancel alive" in caught.value.hint
    fence.check(directory, token)


def test_the_living_run_itself_takes_it_for_its_next_round(directory: Path, living_run: Path) -> None:
    earlier = fence.take(directory, living_run, 1)
    fence.check(directory, fence.take(directory, living_run, 2))
    with pytest.raises(FencedError):
        fence.check(directory, earlier)


@pytest.mark.parametrize("left", ["unlocked", "no lock file", "no run directory"])
def test_a_dead_run_loses_its_directory(directory: Path, run_dir: Path, tmp_path: Path, left: str) -> None:
    dead = tmp_path / "runs" / "dead"
    if left != "no run directory":
        dead.mkdir()
    if left == "unlocked":
        (dead / AGENT_LOCK).touch()
    lost = fence.take(directory, dead, 9)
    fence.check(directory, fence.take(directory, run_dir, 1))
    with pytest.raises(FencedError):
        fence.check(directory, lost)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"token": "x"}', '{"token":1,"run_dir":2,"round":3}', "\udcff"]
)
def test_a_broken_fence_belongs_to_nobody(directory: Path, run_dir: Path, content: str) -> None:
    token = fence.take(directory, run_dir, 1)
    (directory / fence.FENCE_FILE).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(FencedError, match="its fence file is gone") as caught:
        fence.check(directory, token)
    assert "do not empty" in caught.value.hint
    fence.check(directory, fence.take(directory, run_dir, 2))


def test_a_removed_directory_is_told(directory: Path, run_dir: Path) -> None:
    token = fence.take(directory, run_dir, 1)
    (directory / fence.FENCE_FILE).unlink()
    with pytest.raises(FencedError, match="nobody"):
        fence.check(directory, token)


def test_taking_leaves_no_part_files(directory: Path, run_dir: Path) -> None:
    for number in range(5):
        fence.take(directory, run_dir, number)
    assert sorted(path.name for path in directory.iterdir()) == [fence.LOCK_FILE, fence.FENCE_FILE]


def test_a_file_in_place_of_the_directory_is_one_clear_error(tmp_path: Path, run_dir: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="taking the checkpoint directory failed") as caught:
        fence.take(tmp_path / "file", run_dir, 1)
    assert "must name a directory" in caught.value.hint


def test_nobody_takes_the_fence_between_check_and_commit(
    directory: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = fence.take(directory, run_dir, 1)
    taken = threading.Event()

    def take_next() -> None:
        fence.take(directory, run_dir, 2)
        taken.set()

    with fence.holding(directory, token):
        other = threading.Thread(target=take_next)
        other.start()
        assert not taken.wait(0.1)
        fence.check(directory, token)
    assert taken.wait(5)
    other.join(5)


def test_waiting_for_the_lock_is_bounded(
    directory: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "LOCK_TIMEOUT_S", 0.05)
    token = fence.take(directory, run_dir, 1)
    with fence.holding(directory, token), pytest.raises(CheckpointError, match="has held the lock"):
        fence.take(directory, run_dir, 2)


def test_without_an_agent_there_is_only_the_lock(tmp_path: Path) -> None:
    with fence.holding(tmp_path, None):
        assert (tmp_path / fence.LOCK_FILE).exists()


def test_the_agent_does_not_get_numpy_with_it() -> None:
    code = "import sys, phalanx.checkpoint.fence, phalanx.checkpoint.store; print('numpy' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True
    )
    assert found.stdout.strip() == "False"
