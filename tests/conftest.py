"""Rules for all tests: a clean environment, and no silent skips in continuous integration."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

IN_CI = os.environ.get("CI") == "true"


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's runs, a surrounding TF_CONFIG or a surrounding worker."""
    for name in list(os.environ):
        if name.startswith("PHALANX_") or name == "TF_CONFIG":
            monkeypatch.delenv(name)
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "phalanx-home"))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure when CI=true: there everything that a test needs must be there."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
