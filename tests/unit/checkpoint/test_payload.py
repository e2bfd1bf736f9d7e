"""Our files are safetensors files; a file that breaks a rule of the layout is refused, never half read."""

import hashlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from phalanx.checkpoint import payload
from phalanx.errors import CheckpointError

DTYPES = [
    *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool"),
]


def samples() -> dict[str, payload.Array]:
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 2, (3, 5)).astype(name) for name in DTYPES}
    arrays["scalar"] = np.array(1.5, np.float32)
    arrays["empty"] = np.zeros((0, 4), np.float32)
    arrays["special"] = np.array([np.nan, -0.0, np.inf], np.float32)
    arrays["transposed"] = np.arange(12, dtype=np.int32).reshape(3, 4).T
    arrays["big endian"] = np.array([1, 2], ">i4")
    return arrays


def write(path: Path, arrays: dict[str, payload.Array]) -> tuple[int, str]:
    with path.open("wb") as file:
        return payload.write(file, arrays)


def assert_same(found: dict[str, payload.Array], wanted: dict[str, payload.Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype.newbyteorder("<"), name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes(), name


def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    size, sha256 = write(tmp_path / "a", samples())
    assert_same(payload.read(tmp_path / "a"), samples())
    raw = (tmp_path / "a").read_bytes()
    assert (size, sha256) == (len(raw), hashlib.sha256(raw).hexdigest())


def test_the_safetensors_package_reads_ours(tmp_path: Path) -> None:
    write(tmp_path / "a", samples())
    assert_same(load_file(tmp_path / "a"), samples())


def test_we_read_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    arrays = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for name, a in samples().items()}
    arrays["scalar"] = samples()["scalar"]
    save_file(arrays, tmp_path / "a", metadata={"made": "by another"})
    assert_same(payload.read(tmp_path / "a"), arrays)


def test_bfloat16(tmp_path: Path) -> None:
    arrays = {"w": np.array([1.0, 0.1, -3e38], ml_dtypes.bfloat16)}
    write(tmp_path / "a", arrays)
    assert_same(payload.read(tmp_path / "a"), arrays)
    assert_same(load_file(tmp_path / "a"), arrays)


def test_the_same_arrays_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    write(tmp_path / "a", samples())
    write(tmp_path / "b", dict(reversed(samples().items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("text", np.array(["a"])),
        ("object", np.array([None])),
        ("complex", np.array([1j])),
        ("__metadata__", np.zeros(1)),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(tmp_path: Path, name: str, array: payload.Array) -> None:
    with pytest.raises(CheckpointError, match=name):
        write(tmp_path / "a", {name: array})


def file_of(header: Any, data: bytes = b"\0" * 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


F32 = {"dtype": "F32", "shape": [1]}


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "header of 0 bytes in a file of 0"),
        (b"\x01", "file of 1"),
        (b"\xff" * 8, "header of"),
        ((200).to_bytes(8, "little") + b"{}", "header of 200 bytes"),
        (file_of(b"not json"), "no JSON"),
        (file_of(b"\xff\xfe"), "no JSON"),
        (file_of(b"[" * 100_000), "no JSON"),
        (file_of(b'{"a":1,"a":2}'), "twice"),
        (file_of([1]), "no JSON object"),
        (file_of({"a": 1}), "entry 'a'"),
        (file_of({"a": {"dtype": "F32"}}), "entry 'a'"),
        (file_of(entry(dtype="F9")), "dtype 'F9'"),
        (file_of(entry(dtype=["F32"])), "dtype"),
        (file_of(entry(shape=[-2])), "shape"),
        (file_of(entry(shape=[2.0])), "shape"),
        (file_of(entry(shape=[True, 2])), "shape"),
        (file_of(entry(shape=None)), "shape"),
        (file_of(entry(shape=[1] * 40 + [2])), "shape"),
        (file_of(entry(shape=[2**62, 2**62])), "does not match its shape"),
        (file_of(entry(shape=[3])), "does not match its shape"),
        (file_of(entry(data_offsets=[8, 0])), "does not match its shape"),
        (file_of(entry(data_offsets=[0])), "offsets"),
        (file_of(entry(data_offsets=[4, 12])), "starts at byte 4"),
        (file_of(entry(data_offsets=[0, 8]), b"\0" * 7), "8 bytes described, 7 there"),
        (file_of(entry(data_offsets=[0, 8]), b"\0" * 9), "8 bytes described, 9 there"),
        (
            file_of({"a": {**F32, "data_offsets": [0, 4]}, "b": {**F32, "data_offsets": [0, 4]}}),
            "starts at byte 0",
        ),
        (file_of(entry(dtype="BOOL", shape=[8]), b"\x02" * 8), "no booleans"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, raw: bytes, told: str) -> None:
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(CheckpointError, match=told):
        payload.read(tmp_path / "a")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_is_an_error_or_stays_within_the_file(tmp_path: Path, data: st.DataObject) -> None:
    """Flipped values are for the manifest to see. Here: no crash, no memory beyond the size of the file."""
    path = tmp_path / "a"
    write(path, {"w": np.arange(4, dtype=np.float32), "flag": np.array([True])})
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    try:
        arrays = payload.read(path)
    except CheckpointError:
        return
    assert sum(array.nbytes for array in arrays.values()) <= len(raw)
