"""The event log: appended to by many, read while it grows, and never the end of a training."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog, EventReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_a_reader_gets_each_event_once(path: Path) -> None:
    reader = EventReader(path)
    assert list(reader.read_new()) == []
    one, other = EventLog(path), EventLog(path)
    first = one.append(Kind.WORKER_STARTED, round_number=1, rank=0, pid=7)
    second = other.append(Kind.PROGRESS, round_number=1, rank=0, step=3, loss=0.5)
    read = list(reader.read_new())
    assert [(event.kind, event.round, event.rank, event.data) for event in read] == [
        (event.kind, event.round, event.rank, event.data) for event in (first, second)
    ]
    assert list(reader.read_new()) == []
    one.append(Kind.WARNING, message="late")
    assert [event.data for event in reader.read_new()] == [{"message": "late"}]


def test_half_a_line_is_left_for_the_next_look(path: Path) -> None:
    EventLog(path).append(Kind.WARNING, message="whole")
    line = path.read_bytes()
    path.write_bytes(line[:-9])
    reader = EventReader(path)
    assert list(reader.read_new()) == []
    path.write_bytes(line)
    assert [event.data for event in reader.read_new()] == [{"message": "whole"}]


def test_what_is_no_event_is_skipped_and_counted(path: Path) -> None:
    path.write_text(
        '[1]\n{"time": 1, "kind": "of a newer version"}\n{"time": true, "kind": "warning"}\nnothing\n'
    )
    EventLog(path).append(Kind.WARNING, message="good")
    reader = EventReader(path)
    assert [event.kind for event in reader.read_new()] == [Kind.WARNING]
    assert reader.skipped == 4


def test_the_last_words_are_readable_behind_what_a_full_disk_tore(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(path)
    log.append(Kind.ROUND_STARTED, round_number=1, world_size=2)
    path.write_bytes(path.read_bytes() + b'{"time": 1, "ki')  # a worker's last line
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        log.append(Kind.RUN_FINISHED, state="failed")
    assert log.lost == 1
    log.append(Kind.RUN_FINISHED, state="failed")
    reader = EventReader(path)
    assert [event.kind for event in reader.read_new()] == [Kind.ROUND_STARTED, Kind.RUN_FINISHED]
    assert reader.skipped == 1


def refuse(fd: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")
