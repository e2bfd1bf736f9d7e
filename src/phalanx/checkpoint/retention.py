"""Removing what is no longer needed: old checkpoints beyond the last N, and what dead writers left behind.

Removal is a rename to `.trash-...` first, so that a reader never meets half a checkpoint under a step's name.
Only the chief of the current round may call this: the fence makes the directory its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from phalanx.checkpoint.storage import storage_error
from phalanx.checkpoint.store import TMP_PREFIX, TRASH_PREFIX, committed_steps


def prune(directory: Path, keep: int, newest_valid: Path) -> list[Path]:
    """Remove all but the newest `keep` (at least 1) checkpoints; return the paths that went, oldest first.

    `newest_valid` stays in any case: it is the newest that is known to verify, and what is newer by its
    name may not. Raises CheckpointError when the directory does not allow it.
    """
    gone = []
    for _, path in committed_steps(directory)[:-keep]:
        if path != newest_valid:
            _remove(directory, path)
            gone.append(path)
    return gone


def clean_leftovers(directory: Path) -> list[Path]:
    """Remove unfinished writes and removals, which only a writer that is dead can have left; return them.

    Call once at the start of a round, before the first save. Raises CheckpointError.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error("listing checkpoints", directory, error) from error
    leftovers = [directory / name for name in sorted(names) if name.startswith((TMP_PREFIX, TRASH_PREFIX))]
    for path in leftovers:
        _delete(directory, path)
    return leftovers


def _remove(directory: Path, path: Path) -> None:
    trash = directory / f"{TRASH_PREFIX}{path.name}-{secrets.token_hex(4)}"
    try:
        os.rename(path, trash)
    except OSError as error:
        raise storage_error("removing an old checkpoint", directory, error) from error
    _delete(directory, trash)


def _delete(directory: Path, path: Path) -> None:
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise storage_error("removing an old checkpoint", directory, error) from error
