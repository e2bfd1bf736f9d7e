"""The board: a small memory-mapped file in which one worker notes its progress and the agent reads it.

Writing is a plain store of eight aligned bytes: no system call, no lock, and it works while TensorFlow
holds the interpreter elsewhere. A reader may see fields of two neighbouring moments, never half a number.
"""

from __future__ import annotations

import math
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

from phalanx.contract import SECTIONS

_MAGIC = 0x50484C58_00000001  # "PHLX", layout version 1
_SLOTS = 16
SIZE_BYTES = 8 * _SLOTS

# Slots of eight bytes: unsigned integers, then doubles. Times are CLOCK_MONOTONIC, comparable on one host.
_ITS_MAGIC, _PID, _SECTION, _SECTION_SINCE_NS, _BEGUN, _DONE, _TARGET, _START, _STEP_NS, _EXAMPLES = range(10)
_LOSS, _RATE = 12, 13


@dataclass(frozen=True)
class BoardReading:
    """What a board said: steps are global step numbers, times CLOCK_MONOTONIC seconds of that host.

    `target_steps` is 0 and `loss` and `examples_per_s` NaN when the worker did not say.
    """

    pid: int
    section: str
    section_since_s: float
    steps_begun: int
    steps_done: int
    target_steps: int
    start_step: int
    last_step_s: float
    examples_done: int
    loss: float
    examples_per_s: float


class BoardWriter:
    """The worker's end of the board. All methods cost well under two microseconds."""

    def __init__(self, path: Path) -> None:
        """Open `path`, making it when it is not there. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, SIZE_BYTES)
            self._map = mmap.mmap(fd, SIZE_BYTES)
        finally:
            os.close(fd)
        self._ints = memoryview(self._map).cast("Q")
        self._floats = memoryview(self._map).cast("d")
        self._floats[_LOSS] = self._floats[_RATE] = math.nan
        self._ints[_PID] = os.getpid()
        self.section("setup")
        self._ints[_ITS_MAGIC] = _MAGIC

    def section(self, name: str) -> None:
        """Note that the worker is now in section `name` (one of `phalanx.contract.SECTIONS`)."""
        self._ints[_SECTION_SINCE_NS] = time.monotonic_ns()
        self._ints[_SECTION] = SECTIONS.index(name)

    def begin_training(self, start_step: int, target_steps: int) -> None:
        """Note where this round starts and how many steps the job has in all."""
        self._ints[_START] = self._ints[_BEGUN] = self._ints[_DONE] = start_step
        self._ints[_TARGET] = target_steps

    def steps_begun(self, step: int) -> None:
        """Note that all steps up to `step` have been begun."""
        self._ints[_BEGUN] = step

    def steps_done(self, step: int, examples: int) -> None:
        """Note that all steps up to `step` are done; `examples` were used by all ranks in this round."""
        self._ints[_DONE] = step
        self._ints[_EXAMPLES] = examples
        self._ints[_STEP_NS] = time.monotonic_ns()

    def measured(self, loss: float, examples_per_s: float) -> None:
        """Note the last loss seen by this rank and the rate of all ranks together."""
        self._floats[_LOSS] = loss
        self._floats[_RATE] = examples_per_s


def read_board(path: Path) -> BoardReading | None:
    """Read the board at `path`; None when no worker has written it yet."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(raw) < SIZE_BYTES:
        return None
    ints = memoryview(raw).cast("Q")
    floats = memoryview(raw).cast("d")
    if ints[_ITS_MAGIC] != _MAGIC or ints[_SECTION] >= len(SECTIONS):
        return None
    return BoardReading(
        pid=ints[_PID],
        section=SECTIONS[ints[_SECTION]],
        section_since_s=ints[_SECTION_SINCE_NS] / 1e9,
        steps_begun=ints[_BEGUN],
        steps_done=ints[_DONE],
        target_steps=ints[_TARGET],
        start_step=ints[_START],
        last_step_s=ints[_STEP_NS] / 1e9,
        examples_done=ints[_EXAMPLES],
        loss=floats[_LOSS],
        examples_per_s=floats[_RATE],
    )
