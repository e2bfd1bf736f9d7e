"""Reading a checkpoint directory: what is committed, whether it verifies, which one to restore.

    DIR/step-000000500/manifest.json, state.safetensors     committed
    DIR/.tmp-<round>-<random>/                               being written, or left by a writer that died
    DIR/corrupt-step-000000500-<random>/                     set aside: it did not verify
    DIR/.trash-step-000000500-<random>/                      being removed
    DIR/fence.json, DIR/.fence.lock                          see `fence`

Changes nothing but the name of what does not verify. Standard library only, so that commands load it fast;
`payload` reads the arrays, `commit` writes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from phalanx.checkpoint.manifest import FileEntry, Manifest
from phalanx.checkpoint.storage import storage_error
from phalanx.errors import CheckpointError, PhalanxError

MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.safetensors"
TMP_PREFIX = ".tmp-"
TRASH_PREFIX = ".trash-"
CORRUPT_PREFIX = "corrupt-"
_STEP_NAME = re.compile(r"step-(\d{9,})")
_CHUNK_BYTES = 1 << 20
# A manifest holds about 100 bytes a variable; this bounds what a broken file can make us read.
_MANIFEST_LIMIT_BYTES = 256 << 20


@dataclass(frozen=True)
class Committed:
    """A committed checkpoint whose manifest verifies."""

    step: int
    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Listed:
    """One entry of `list_committed`: `manifest` is None and `problem` says why when it is known to be bad."""

    step: int
    path: Path
    manifest: Manifest | None
    problem: str = ""


@dataclass(frozen=True)
class Corrupt:
    """A checkpoint that did not verify. `moved_to` is None when the directory does not let it be renamed."""

    path: Path
    moved_to: Path | None
    message: str


def step_name(step: int) -> str:
    """Name of the directory of a checkpoint: nine digits, more when needed."""
    return f"step-{step:09d}"


def committed_steps(directory: Path) -> list[tuple[int, Path]]:
    """(step, path) of every directory with a checkpoint's name, ascending; empty without `directory`.

    Raises CheckpointError when the directory cannot be read.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error("listing checkpoints", directory, error) from error
    found = []
    for name in names:
        match = _STEP_NAME.fullmatch(name)
        if match and name == step_name(int(match[1])):
            found.append((int(match[1]), directory / name))
    return sorted(found)


def list_committed(directory: Path) -> tuple[Listed, ...]:
    """Committed checkpoints, ascending by step, judged by manifest and file sizes (checksums: `verify`).

    Cheap, and safe while a run is writing. Raises CheckpointError when the directory cannot be read.
    """
    listed = (_listed(step, path) for step, path in committed_steps(directory))
    return tuple(entry for entry in listed if entry is not None)


def verify(path: Path) -> Manifest:
    """Read every byte of the checkpoint at `path` and return its manifest.

    Raises CheckpointError saying what is wrong (a missing or truncated file, a checksum, a broken
    manifest), IncompatibleError for one of a newer Phalanx, FileNotFoundError when `path` is not there,
    OSError when it cannot be read.
    """
    match = _STEP_NAME.fullmatch(path.name)
    manifest = _read_manifest(path, int(match[1]) if match else None)
    for entry in manifest.files:
        _check_size(path, entry)
        digest = hashlib.sha256()
        for chunk in _chunks(path / entry.name):
            digest.update(chunk)
        if digest.hexdigest() != entry.sha256:
            raise CheckpointError(f"{entry.name} is damaged: its contents do not match their checksum")
    return manifest


def newest_valid(directory: Path, on_corrupt: Callable[[Corrupt], None]) -> Committed | None:
    """Return the newest checkpoint that verifies; None when there is none.

    What does not verify is renamed to `corrupt-...`, told to `on_corrupt`, and the one before is tried.
    Several ranks may call this at once: each verifies for itself, and only the one whose rename succeeds
    tells. Raises CheckpointError when the directory cannot be read, IncompatibleError when the newest
    checkpoint was written by a newer Phalanx.
    """
    for step, path in reversed(committed_steps(directory)):
        try:
            return Committed(step, path, verify(path))
        except FileNotFoundError:
            continue  # another rank has set it aside
        except CheckpointError as error:
            message = error.message
        except OSError as error:
            if error.errno != errno.EIO:
                raise storage_error("reading the checkpoint", path, error) from error
            message = f"it cannot be read: {os.strerror(errno.EIO)}"
        try:
            moved_to = set_aside(path)
        except FileNotFoundError:
            continue
        except OSError:  # a read-only directory: skipping it is all that can be done
            moved_to = None
        on_corrupt(Corrupt(path, moved_to, message))
    return None


def set_aside(path: Path) -> Path:
    """Rename a checkpoint that does not verify to `corrupt-...`. Raises OSError."""
    moved_to = path.with_name(f"{CORRUPT_PREFIX}{path.name}-{secrets.token_hex(4)}")
    os.rename(path, moved_to)
    return moved_to


def _listed(step: int, path: Path) -> Listed | None:
    """Judge one checkpoint; None when it was removed or set aside since the listing."""
    try:
        manifest = _read_manifest(path, step)
        for entry in manifest.files:
            _check_size(path, entry)
    except FileNotFoundError:
        return None
    except PhalanxError as error:
        return Listed(step, path, None, error.message)
    except OSError as error:
        return Listed(step, path, None, f"it cannot be read: {error.strerror}")
    return Listed(step, path, manifest)


def _read_manifest(path: Path, step: int | None) -> Manifest:
    """Read the manifest; `step` is what the directory's name says. Raises like `verify`."""
    file = path / MANIFEST_FILE
    try:
        if file.stat().st_size > _MANIFEST_LIMIT_BYTES:
            raise CheckpointError(f"{MANIFEST_FILE} is broken: it is larger than any manifest")
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        path.stat()  # FileNotFoundError when it is the checkpoint that is gone, not only its manifest
        raise CheckpointError(f"{MANIFEST_FILE} is missing") from None
    except UnicodeDecodeError:
        raise CheckpointError(f"{MANIFEST_FILE} is broken: not UTF-8") from None
    manifest = Manifest.from_json(text)
    if step is not None and manifest.step != step:
        raise CheckpointError(f"the manifest says step {manifest.step}, the directory's name step {step}")
    if STATE_FILE not in {entry.name for entry in manifest.files}:
        raise CheckpointError(f"the manifest does not list {STATE_FILE}")
    return manifest


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        size = (path / entry.name).stat().st_size
    except FileNotFoundError:
        path.stat()
        raise CheckpointError(f"{entry.name} is missing") from None
    if size < entry.size_bytes:
        raise CheckpointError(f"{entry.name} is truncated: {size} of {entry.size_bytes} bytes are there")
    if size > entry.size_bytes:
        raise CheckpointError(f"{entry.name} is too long: {size} bytes instead of {entry.size_bytes}")


def _chunks(path: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
