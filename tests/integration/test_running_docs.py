"""docs/running.md: its commands run, and what it promises of the JSON is what is printed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from launching import PHALANX, phalanx

PAGE = (Path(__file__).parents[2] / "docs" / "running.md").read_text()
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# A reader types the next command when the run is there to be seen.
UNTIL_RUNNING = (
    """timeout 30 bash -c 'until phalanx status --json | grep -q "state.*running"; do :; done'\n"""
)


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(BLOCKS) == 5
    monkeypatch.setenv("PATH", f"{PHALANX.parent}{os.pathsep}{os.environ['PATH']}")
    script = "".join(block + (UNTIL_RUNNING if block.endswith("&\n") else "") for block in BLOCKS)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "[rank 1]" not in done.stdout  # one rank was asked for
    assert "rank 1 counts 9" in done.stdout
    assert ": stopped" in done.stdout
    assert "run resumed" in done.stdout
    assert phalanx("status", "count", "--json").json["state"] == "succeeded"


def test_the_page_names_every_key_of_the_status(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")
    printed = phalanx("run", "hello.py", "--json", cwd=tmp_path).json
    section = PAGE.split("## JSON")[1].split("## In the run directory")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(printed)
    listed = phalanx("list", "--json").json[0]
    assert "{" + ", ".join(listed) + "}" in section
