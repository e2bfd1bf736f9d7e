"""docs/exit-codes.md says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from phalanx.agent.policy import Cause
from phalanx.contract import ExitCode

DOCS = Path(__file__).parents[3] / "docs"


def test_the_table_is_the_enumeration() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", (DOCS / "exit-codes.md").read_text(), re.MULTILINE)
    assert rows == [(str(int(code)), code.name, code.meaning) for code in ExitCode]


def test_every_cause_of_a_failure_is_explained() -> None:
    text = (DOCS / "failures.md").read_text()
    unexplained = {Cause.FINISHED, Cause.STOPPED, Cause.STUCK}
    assert [cause for cause in Cause if cause not in unexplained and f"`{cause.value}`" not in text] == []
