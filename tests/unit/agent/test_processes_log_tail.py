"""The end of a log, as it is shown for a worker that left no report."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.agent.processes import log_tail


@pytest.mark.parametrize(
    ("content", "lines", "tail"),
    [
        (b"", 3, ()),
        (b"one\n\n  \ntwo\nthree", 2, ("two", "three")),
        (b"one\n", 3, ("one",)),
        (b"one\ntwo\n", 0, ()),
        (b"\xff\xfe bad\n", 3, ("\ufffd\ufffd bad",)),
        (b"x" * 100_000 + b"\nlast\n", 1, ("last",)),
    ],
)
def test_log_tail(tmp_path: Path, content: bytes, lines: int, tail: tuple[str, ...]) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert log_tail(path, lines) == tail


def test_no_log(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "absent", 3) == ()
