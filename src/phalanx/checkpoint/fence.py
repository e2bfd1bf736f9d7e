"""The fence: one small file in a checkpoint directory that names the only round allowed to commit there.

The agent takes the fence before each round; a writer shows its token at the moment of commit. So a worker
of an earlier round that wakes up late cannot add a checkpoint. Standard library only: the agent imports this.

Limits: whether another run is alive is asked through a lock on its run directory, and check and rename
exclude `take` through a lock in the checkpoint directory. Both locks (flock) hold between processes of one
host and on NFS; on a file system without flock the token alone protects, with a window between check and
rename.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.checkpoint.storage import replace_durably, storage_error
from phalanx.contract import AGENT_LOCK
from phalanx.errors import CheckpointBusyError, CheckpointError, FencedError

FENCE_FILE = "fence.json"
LOCK_FILE = ".fence.lock"

# A holder keeps the lock for one rename and one fsync; a disk that needs longer than this is not working.
LOCK_TIMEOUT_S = 20.0
_NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


def take(directory: Path, run_dir: Path, round_number: int) -> str:
    """Make round `round_number` of the run at `run_dir` the only one that may commit in `directory`.

    Creates the directory. Returns the token for `check` and `holding`; every earlier token is void.
    Raises CheckpointBusyError when another run that is alive owns the directory, CheckpointError when the
    directory cannot be written.
    """
    run_dir = run_dir.resolve()
    token = f"{run_dir.name}:{round_number}:{secrets.token_hex(8)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory):
            owner = _read(directory)
            other = owner.get("run_dir")
            if other is not None and Path(other) != run_dir and _is_alive(Path(other)):
                name = Path(other).name
                raise CheckpointBusyError(
                    f"checkpoint directory {directory} belongs to the run {name}, which is running",
                    f"stop it with `phalanx cancel {name}`, or give this job another checkpoint.dir",
                )
            content = {"token": token, "run_dir": str(run_dir), "round": round_number, "taken": time.time()}
            replace_durably(directory / FENCE_FILE, (json.dumps(content) + "\n").encode())
    except OSError as error:
        raise storage_error("taking the checkpoint directory", directory, error) from error
    return token


def check(directory: Path, token: str) -> None:
    """Raise FencedError unless `token` is the newest one taken; CheckpointError when that cannot be read."""
    try:
        owner = _read(directory)
    except OSError as error:
        raise storage_error("reading the fence", directory, error) from error
    if owner.get("token") == token:
        return
    now = (
        f"{Path(owner['run_dir']).name} round {owner['round']}" if owner else "nobody: its fence file is gone"
    )
    raise FencedError(
        f"not committing in {directory}: it was taken for {_told(token)} and now belongs to {now}",
        "nothing to do: this worker's round is over"
        if owner
        else "do not empty the directory of a running job",
    )


@contextmanager
def holding(directory: Path, token: str | None) -> Iterator[None]:
    """`check`, and nobody can take the fence until the block is left. `None` (no agent) only locks.

    Raises FencedError, CheckpointError; and OSError when the lock file cannot be opened.
    """
    with _locked(directory):
        if token is not None:
            check(directory, token)
        yield


def _told(token: str) -> str:
    return token.rpartition(":")[0].replace(":", " round ")


def _read(directory: Path) -> dict[str, str]:
    """Read the fence; {} when there is none, or none that can be understood (it is replaced atomically)."""
    try:
        raw = json.loads((directory / FENCE_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    known = (
        isinstance(raw, dict)
        and {"token", "run_dir", "round"} <= raw.keys()
        and isinstance(raw["run_dir"], str)
    )
    return raw if known else {}


def _is_alive(run_dir: Path) -> bool:
    """Whether an agent holds the lock of that run. A run directory that is gone belongs to nobody.

    Nor does one on a file system without locks: no agent starts there.
    """
    try:
        fd = os.open(run_dir / AGENT_LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
    finally:
        os.close(fd)
    return False


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock. Raises OSError, and CheckpointError after LOCK_TIMEOUT_S."""
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(fd, directory)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, directory: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while not _try_lock(fd):
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"another process has held the lock of {directory} for {LOCK_TIMEOUT_S:.0f} s",
                f"find it with `fuser {directory / LOCK_FILE}`",
            )
        time.sleep(0.01)


def _try_lock(fd: int) -> bool:
    """Whether the lock is ours, or the file system has none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_FLOCK:
            raise
    return True
