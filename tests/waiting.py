"""Bounded waiting for tests: no test sleeps, each waits for something that will happen or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], timeout_s: float, what: str = "") -> T:
    """Return the first true value of `condition`, asked every 20 ms; fail the test after `timeout_s`."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        pause.wait(0.02)
