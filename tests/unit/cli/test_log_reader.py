"""Reading logs that grow."""

from __future__ import annotations

from pathlib import Path

from phalanx.cli.logs import LogReader


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    reader = LogReader(path)
    assert list(reader.read_new()) == []
    path.write_bytes(b"one\ntw")
    assert list(reader.read_new()) == ["one"]
    with path.open("ab") as file:
        file.write(b"o\n\xff three")
    assert list(reader.read_new()) == ["two"]
    assert list(reader.read_rest()) == ["\ufffd three"]
    assert list(reader.read_rest()) == []


def test_tail_then_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_text("".join(f"line {number}\n" for number in range(10)))
    reader = LogReader(path)
    assert reader.read_tail(2) == ["line 8", "line 9"]
    with path.open("a") as file:
        file.write("line 10\n")
    assert list(reader.read_new()) == ["line 10"]


def test_a_tail_of_nothing_still_skips_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.log"
    path.write_text("old\n")
    reader = LogReader(path)
    assert reader.read_tail(0) == []
    assert list(reader.read_new()) == []
