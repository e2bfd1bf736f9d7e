"""Arrays in a file, in the published safetensors layout: a length, a JSON header, raw little-endian bytes.

The layout (https://huggingface.co/docs/safetensors, "Format") is public, needs no pickle, and many tools read
it. This is our own small reader and writer: reading trusts nothing in the file, and a file that breaks a rule
is refused whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from phalanx.errors import CheckpointError

Array = NDArray[Any]

_CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_NAMES = {code: name for name, code in _CODES.items()}
_METADATA = "__metadata__"
# The layout's own limit; it bounds what a broken length can make us read.
_HEADER_LIMIT_BYTES = 100_000_000
_ALIGNMENT_BYTES = 8


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> tuple[int, str]:
    """Write `arrays` to `file` one after the other, larger dtypes first; return (size in bytes, SHA-256).

    No copy of all arrays is made. Raises CheckpointError for a dtype that the layout does not have or a
    name that it reserves, and OSError.
    """
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {}
    offset = 0
    for name in names:
        array = arrays[name]
        code = _CODES.get(array.dtype.name)
        if code is None or name == _METADATA:
            raise CheckpointError(
                f"variable {name!r} of dtype {array.dtype} cannot be stored in a checkpoint"
            )
        end = offset + array.nbytes
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    prefix = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(prefix)
    file.write(prefix)
    for name in names:
        raw = _bytes_of(arrays[name])
        digest.update(raw)
        file.write(raw)
    return len(prefix) + offset, digest.hexdigest()


def read(path: Path) -> dict[str, Array]:
    """Read every array of the file at `path`.

    Raises CheckpointError when the file breaks any rule of the layout, OSError when it cannot be read.
    Memory is bounded by the size of the file.
    """
    with path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        header, data_start = _read_header(file, size)
        arrays = {}
        for name, dtype, shape, start in _checked(header, size - data_start):
            array = np.empty(shape, dtype)
            file.seek(data_start + start)
            if not _fill(file, array.reshape(-1).view(np.uint8).data):
                raise CheckpointError(f"the payload is truncated in {name!r}")
            if dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
                raise CheckpointError(f"the payload is broken: {name!r} holds bytes that are no booleans")
            arrays[name] = array
    return arrays


def _fill(file: io.FileIO, buffer: memoryview) -> bool:
    """Fill `buffer` from `file`; False when the file ends before. One read gives 2 GiB at most."""
    done = 0
    while done < buffer.nbytes:
        count = file.readinto(buffer[done:])
        if not count:
            return False
        done += count
    return True


def _bytes_of(array: Array) -> memoryview:
    """The array's bytes in little-endian C order, without a copy where it is stored so already."""
    contiguous = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return contiguous.reshape(-1).view(np.uint8).data


def _dtype_of(code: object, name: str) -> np.dtype[Any]:
    known = _NAMES.get(code) if isinstance(code, str) else None
    if known is None:
        raise CheckpointError(f"the payload is broken: {name!r} has dtype {code!r}")
    if known == "bfloat16":
        # NumPy has no bfloat16. TensorFlow brings this package; a reader of other dtypes need not have it.
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(f"<{np.dtype(known).str[1:]}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _read_header(file: io.FileIO, size: int) -> tuple[dict[str, Any], int]:
    """Return the header without its metadata, and where the data starts in the file."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8 or length > _HEADER_LIMIT_BYTES:
        raise CheckpointError(f"the payload is broken: a header of {length} bytes in a file of {size}")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the payload is broken: its header is no JSON ({error})") from error
    if not isinstance(header, dict):
        raise CheckpointError("the payload is broken: its header is no JSON object")
    header.pop(_METADATA, None)
    return header, 8 + length


def _checked(
    header: dict[str, Any], data_bytes: int
) -> list[tuple[str, np.dtype[Any], tuple[int, ...], int]]:
    """(name, dtype, shape, start) in the order of the data, once it is sure that they tile it exactly."""
    entries = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(f"the payload is broken: the header's entry {name!r} is {str(entry)[:80]}")
        dtype, shape, offsets = _dtype_of(entry["dtype"], name), entry["shape"], entry["data_offsets"]
        counts = isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2
        if not counts or not all(type(n) is int and n >= 0 for n in (*shape, *offsets)) or len(shape) > 32:
            raise CheckpointError(
                f"the payload is broken: {name!r} has shape {shape} and offsets {offsets}"[:300]
            )
        if offsets[1] - offsets[0] != math.prod(shape) * dtype.itemsize:
            raise CheckpointError(
                f"the payload is broken: the size of {name!r} does not match its shape {shape}"
            )
        entries.append((offsets[0], offsets[1], name, dtype, tuple(shape)))
    position = 0
    for start, end, name, *_ in sorted(entries, key=lambda entry: entry[:3]):
        if start != position:
            raise CheckpointError(
                f"the payload is broken: {name!r} starts at byte {start}, not at {position}"
            )
        position = end
    if position != data_bytes:
        raise CheckpointError(f"the payload is broken: {position} bytes described, {data_bytes} there")
    return [(name, dtype, shape, start) for start, _, name, dtype, shape in entries]
