"""What a foreground run shows: nothing, plain lines, or (in `live`) a picture that is redrawn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TextIO

from phalanx.cli import wording
from phalanx.cli.summary import steps_text
from phalanx.events.kinds import Event, Kind
from phalanx.events.status import RunStatus

PROGRESS_PERIOD_S = 5.0
# The progress line tells the first, the summary at the end the second.
_NOT_A_LINE = (Kind.PROGRESS, Kind.RUN_FINISHED)


class View(Protocol):
    """Shows how a run goes. Methods raise OSError when nobody is there to see it any more."""

    def update(self, status: RunStatus, events: Iterable[Event]) -> None:
        """Show the status and the events that are new since the last call."""

    def close(self) -> None:
        """Leave the screen ready for other output."""


class NoView:
    """Shows nothing."""

    def update(self, status: RunStatus, events: Iterable[Event]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainView:
    """One line an event, and a line of progress every few seconds: for files, pipes and CI."""

    def __init__(
        self, run_id: str, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._heading = f"run {run_id}"
        self._write = write
        self._clock = clock
        self._progress = ""
        self._progress_s = float("-inf")

    def update(self, status: RunStatus, events: Iterable[Event]) -> None:
        """Write what is new."""
        if self._heading:
            self._write(self._heading)
            self._heading = ""
        for event in events:
            if event.kind not in _NOT_A_LINE:
                self._write(f"{wording.clock(event.time)}  {wording.event_line(event)}")
        line = progress_line(status)
        now = self._clock()
        if line and line != self._progress and now - self._progress_s >= PROGRESS_PERIOD_S:
            self._progress, self._progress_s = line, now
            self._write(f"{wording.clock(time.time())}  {line}")

    def close(self) -> None:
        """Do nothing: lines stay."""


def progress_line(status: RunStatus) -> str:
    """`step 120 of 600  loss 0.31  812 examples/s  1m20s to go`; empty while there is no step to tell of."""
    if status.state.is_final or not status.step:
        return ""
    parts = [f"step {steps_text(status)}"]
    if status.loss is not None:
        parts.append(f"loss {wording.number(status.loss)}")
    if status.examples_per_s is not None:
        parts.append(wording.rate(status.examples_per_s))
    if status.eta_s is not None:
        parts.append(f"{wording.duration(status.eta_s)} to go")
    return "  ".join(parts)


def in_foreground(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal and this process stands in its foreground.

    From the background a picture would spoil what is typed there, and changing the terminal would stop us.
    """
    try:
        return stream is not None and os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal of this session, or closed
        return False
