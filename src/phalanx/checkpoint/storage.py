"""Writing so that it is still there after a power cut, and saying in words why the disk refused.

Standard library only: the agent imports this through `fence`. Knows nothing of checkpoints' contents.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from phalanx.errors import CheckpointError

_HINTS = {
    errno.ENOSPC: "free space there, or lower checkpoint.keep, or name another checkpoint.dir",
    errno.EDQUOT: "the disk quota is used up: free space there or name another checkpoint.dir",
    errno.EROFS: "the file system is read-only: name another checkpoint.dir",
    errno.EACCES: "the user who runs the job must be able to write there",
    errno.EPERM: "the user who runs the job must be able to write there",
    errno.EIO: "the disk reports errors: see the kernel's log, then name another checkpoint.dir",
    errno.ENOTDIR: "checkpoint.dir must name a directory",
    errno.EEXIST: "checkpoint.dir must name a directory",
}


def storage_error(doing: str, path: Path, error: OSError) -> CheckpointError:
    """Turn what the operating system said while `doing` something at `path` into an error for a person.

    The message carries the errno text and, where writing failed, the free bytes of that file system.
    """
    reason = os.strerror(error.errno) if error.errno else str(error)
    free = ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        with suppress(OSError):
            free = f"; {shutil.disk_usage(path).free} bytes are free there"
    hint = _HINTS.get(error.errno or 0, "")
    return CheckpointError(f"{doing} failed in {path}: {reason}{free}", hint)


def sync_directory(path: Path) -> None:
    """Make the names in directory `path` durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and flush it to the disk. Raises OSError; the file may then be there in part."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Give `path` new contents: a reader sees the old or the new, also after a crash. Raises OSError."""
    part = path.with_name(f"{path.name}.part-{secrets.token_hex(4)}")
    try:
        write_durably(part, data)
        os.rename(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync_directory(path.parent)
