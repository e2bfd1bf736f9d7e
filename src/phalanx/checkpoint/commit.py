"""Writing a checkpoint so that it is there whole or not at all: after kill -9, a full disk, a power cut.

The protocol: write into `.tmp-<round>-<random>`, flush each file to the disk, the manifest last, then the
directory; under the fence rename it to `step-<step>`; flush the parent. The rename is the commit. Nothing
here removes or changes a committed checkpoint.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from phalanx.checkpoint import fence, payload
from phalanx.checkpoint.manifest import FileEntry, Manifest, VariableEntry
from phalanx.checkpoint.storage import storage_error, sync_directory, write_durably
from phalanx.checkpoint.store import (
    MANIFEST_FILE,
    STATE_FILE,
    TMP_PREFIX,
    Committed,
    set_aside,
    step_name,
    verify,
)
from phalanx.errors import CheckpointError


def commit(
    directory: Path, arrays: Mapping[str, payload.Array], draft: Manifest, fence_token: str | None
) -> Committed:
    """Commit `arrays` as the checkpoint of `draft.step`; `draft.files` and `draft.variables` are filled in.

    A valid checkpoint of the same step counts as committed already; an invalid one is set aside first.
    `fence_token` None: no agent, no fence. Raises FencedError when the round is over, and CheckpointError
    with the system's words and the free bytes when the disk refuses; what was written is then removed.
    """
    final = directory / step_name(draft.step)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        there = _already_committed(final)
        if there is None:
            temporary = directory / f"{TMP_PREFIX}{draft.round}-{secrets.token_hex(4)}"
            there = _write_and_rename(temporary, final, arrays, draft, fence_token)
        sync_directory(directory)
    except OSError as error:
        raise storage_error(f"saving the checkpoint of step {draft.step}", directory, error) from error
    return there


def _already_committed(final: Path) -> Committed | None:
    try:
        manifest = verify(final)
    except FileNotFoundError:
        return None
    except CheckpointError:
        set_aside(final)
        return None
    return Committed(manifest.step, final, manifest)


def _write_and_rename(
    temporary: Path,
    final: Path,
    arrays: Mapping[str, payload.Array],
    draft: Manifest,
    fence_token: str | None,
) -> Committed:
    try:
        temporary.mkdir()
        manifest = _write(temporary, arrays, draft)
        with fence.holding(final.parent, fence_token):
            os.rename(temporary, final)
    except BaseException:
        # Also for KeyboardInterrupt: half a checkpoint is of use to nobody, and may fill the disk.
        with suppress(OSError):
            shutil.rmtree(temporary)
        raise
    return Committed(manifest.step, final, manifest)


def _write(temporary: Path, arrays: Mapping[str, payload.Array], draft: Manifest) -> Manifest:
    """Write both files and flush them and the directory."""
    with (temporary / STATE_FILE).open("xb") as file:
        size_bytes, sha256 = payload.write(file, arrays)
        file.flush()
        os.fsync(file.fileno())
    manifest = replace(
        draft,
        files=(FileEntry(STATE_FILE, size_bytes, sha256),),
        variables=tuple(
            VariableEntry(name, array.dtype.name, array.shape) for name, array in sorted(arrays.items())
        ),
    )
    write_durably(temporary / MANIFEST_FILE, manifest.to_json().encode())
    sync_directory(temporary)
    return manifest
