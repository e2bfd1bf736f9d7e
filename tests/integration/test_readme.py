"""README.md: its commands and its program run, its links lead somewhere, its make targets exist."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from launching import PHALANX, phalanx

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.tensorflow
def test_the_first_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = blocks("bash")
    monkeypatch.setenv("PATH", f"{PHALANX.parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("succeeded") == 2  # once by `run`, once by `status`


@pytest.mark.tensorflow
def test_the_program_trains_on_two_workers(tmp_path: Path) -> None:
    (program,) = blocks("python")
    (tmp_path / "train.py").write_text(program)
    done = phalanx("run", "train.py", "-n", "2", cwd=tmp_path, timeout_s=120)
    assert done.code == 0, done.stdout
    assert "200 of 200" in done.stdout


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert len(links) >= 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_links_of_the_pages_lead_to_files() -> None:
    broken = [
        f"{page.name}: {link}"
        for page in sorted((ROOT / "docs").glob("*.md"))
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"`make (\w+)`", PAGE)
    assert {"test", "check", "bench"} <= set(targets)
    made = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(targets) <= set(made)
