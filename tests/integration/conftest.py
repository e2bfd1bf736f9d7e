"""Rules for tests that start processes: none of them may outlive its test."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from waiting import wait_for


def marked_processes(mark: bytes) -> dict[int, str]:
    """Living processes (no zombies) whose environment carries `mark`: pid -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (
                mark in (entry / "environ").read_bytes()
                and "\nState:\tZ" not in (entry / "status").read_text()
            ):
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


@pytest.fixture(autouse=True)
def no_orphans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test when a process that it started, at any depth, is still alive 10 s after its end."""
    mark = f"PHALANX_TEST_MARK={uuid.uuid4().hex}"
    name, value = mark.split("=")
    monkeypatch.setenv(name, value)
    yield
    try:
        wait_for(
            lambda: not marked_processes(mark.encode()),
            10,
            f"processes outlived the test: {marked_processes(mark.encode())}",
        )
    finally:
        for pid in marked_processes(mark.encode()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
