"""The manifest of a checkpoint: what it is, what it holds, and the checksums that prove it.

Written last, so a directory with a manifest that verifies is a whole checkpoint. Standard library only;
reads and writes text, never files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from phalanx.errors import CheckpointError, IncompatibleError

FORMAT_VERSION = 1
_CHECKSUM = "checksum"


@dataclass(frozen=True)
class FileEntry:
    """One file of the checkpoint: plain name, size, and SHA-256 as 64 hexadecimal digits."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class VariableEntry:
    """One variable: its path, its dtype by NumPy's name (`float32`, `bfloat16`), its shape."""

    path: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is. `step` steps are done; `data_position` is what the data order needs to go on.

    `seed` is the job's seed (None: none was set); the states of seed generators are variables of the payload.
    `versions` names the libraries that wrote it, `created` is UTC in ISO 8601. `files` and `variables` are
    empty until `commit` fills them in.
    """

    step: int
    round: int
    world_size: int
    job: str
    job_hash: str
    created: str
    data_position: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    files: tuple[FileEntry, ...] = ()
    variables: tuple[VariableEntry, ...] = ()
    format_version: int = FORMAT_VERSION

    @property
    def size_bytes(self) -> int:
        """Size of all files that the manifest lists."""
        return sum(entry.size_bytes for entry in self.files)

    def to_json(self) -> str:
        """Text with a checksum over itself. Raises TypeError, ValueError when `data_position` is not JSON."""
        raw = asdict(self)
        raw[_CHECKSUM] = _checksum(raw)
        return json.dumps(raw, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read back what `to_json` wrote.

        Raises CheckpointError when anything in it changed, IncompatibleError when a newer Phalanx wrote it
        (then it is not broken, and must not be set aside).
        """
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"the manifest is broken: no JSON ({error})") from error
        if not isinstance(raw, dict):
            raise CheckpointError(f"the manifest is broken: a {type(raw).__name__}, not an object")
        if raw.pop(_CHECKSUM, None) != _checksum(raw):
            raise CheckpointError("the manifest is broken: it does not match its own checksum")
        version = raw.get("format_version")
        if version != FORMAT_VERSION:
            raise IncompatibleError(
                f"the checkpoint has format {version!r}; this Phalanx reads format {FORMAT_VERSION}",
                "use the version of Phalanx that wrote it (`versions.phalanx` in its manifest.json)",
            )
        return _validated(raw)


def _checksum(raw: Mapping[str, Any]) -> str:
    canonical = json.dumps(raw, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _is_file(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"name", "size_bytes", "sha256"}:
        return False
    name, sha256 = value["name"], value["sha256"]
    plain = isinstance(name, str) and name not in ("", ".", "..") and "/" not in name and "\0" not in name
    return plain and _is_count(value["size_bytes"]) and isinstance(sha256, str) and len(sha256) == 64


def _is_variable(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"path", "dtype", "shape"}
        and isinstance(value["path"], str)
        and isinstance(value["dtype"], str)
        and isinstance(value["shape"], list)
        and all(_is_count(size) for size in value["shape"])
    )


_RULES = {
    "step": _is_count,
    "round": _is_count,
    "world_size": _is_count,
    "job": lambda value: isinstance(value, str),
    "job_hash": lambda value: isinstance(value, str),
    "created": lambda value: isinstance(value, str),
    "data_position": lambda value: isinstance(value, dict),
    "seed": lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool)),
    "versions": _is_text_map,
    "files": lambda value: isinstance(value, list) and all(_is_file(entry) for entry in value),
    "variables": lambda value: isinstance(value, list) and all(_is_variable(entry) for entry in value),
    "format_version": _is_count,
}


def _validated(raw: dict[str, Any]) -> Manifest:
    """Check every field. A checksum proves that nothing changed, not that the writer was right."""
    names = {entry.name for entry in fields(Manifest)}
    if raw.keys() != names:
        odd = ", ".join(sorted(raw.keys() ^ names))
        raise CheckpointError(f"the manifest is broken: missing or unknown fields: {odd}")
    for name, is_right in _RULES.items():
        if not is_right(raw[name]):
            raise CheckpointError(f"the manifest is broken: {name} is {raw[name]!r}"[:300])
    files = tuple(FileEntry(**entry) for entry in raw["files"])
    variables = tuple(
        VariableEntry(entry["path"], entry["dtype"], tuple(entry["shape"])) for entry in raw["variables"]
    )
    return Manifest(**{**raw, "files": files, "variables": variables})
