"""Turns SIGTERM into a flag that the training loop reads between steps, as long as the loop runs.

Outside the loop SIGTERM keeps its meaning: there is nothing to save.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopFlag:
    """A context manager; `requested` is true once SIGTERM came within it.

    Python runs handlers in the main thread between two bytecodes, so the flag rises when the step under way
    has returned from TensorFlow. Outside the main thread no handler can be set and the flag never rises.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> StopFlag:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
