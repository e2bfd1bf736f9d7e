"""The event log of a run: one JSON line an event, each appended by one write, so processes can share it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.events.kinds import Event, Kind


class EventLog:
    """Appends events to a file. Safe for several writing processes on one local file system (O_APPEND).

    Appending never raises for a full disk: losing an event must not end training. What could not be
    written is counted in `lost`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        self._torn = False
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def append(
        self, kind: Kind, *, round_number: int | None = None, rank: int | None = None, **data: Any
    ) -> Event:
        """Append one event with the present time and return it."""
        event = Event(time.time(), kind, round_number, rank, data)
        line = (event.to_line() + "\n").encode()
        if self._torn:
            line = b"\n" + line
        try:
            written = os.write(self._fd, line)
        except OSError:
            written = 0
        if written == len(line):
            self._torn = False
        else:
            self.lost += 1
            self._torn = True  # this line may stand there in half, or that of another writer of the full disk
        return event

    def close(self) -> None:
        """Close the file; the log can not be used afterwards."""
        os.close(self._fd)


class EventReader:
    """Reads events from a log, and on each further call what was appended since; the log may be growing.

    A torn line (a writer died, the disk was full) and kinds of a newer version are skipped and counted in
    `skipped`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skipped = 0
        self._offset = 0

    def read_new(self) -> Iterator[Event]:
        """Yield the events appended since the last call; nothing when the file does not exist yet."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except FileNotFoundError:
            return
        complete = chunk[: chunk.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in filter(None, complete.splitlines()):
            try:
                event = Event.from_line(line.decode())
            except (ValueError, RecursionError):
                self.skipped += 1
                continue
            yield event
