"""The import contracts hold on the tree as it is, and each of them fails when it is broken."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(tree: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the copy of the package in `tree`."""
    arguments = ["--no-cache"] + (["--contract", contract] if contract else [])
    return subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS, *arguments],
        check=False,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_tree_keeps_all_contracts(tree: Path) -> None:
    result = lint(tree)
    assert result.returncode == 0, result.stdout
    assert "4 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [
        ("layers", "events/upward.py", "import phalanx.plan.model"),
        ("layers", "backends/sideways.py", "import phalanx.agent"),
        ("layers", "utils/__init__.py", ""),
        ("launcher-closure", "cli/heavy.py", "import tensorflow"),
        ("launcher-closure", "plan/heavy.py", "import phalanx.train"),
        ("agent-closure", "agent/files.py", "import pydantic"),
        ("agent-closure", "rendezvous/files.py", "import phalanx.spec"),
        ("worker-closure", "train/files.py", "import ruamel.yaml"),
        ("worker-closure", "checkpoint/upward.py", "import phalanx.rendezvous"),
    ],
)
def test_a_broken_contract_fails(tree: Path, contract: str, file: str, line: str) -> None:
    path = tree / "src" / "phalanx" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line + "\n")
    result = lint(tree, contract)
    assert result.returncode == 1, result.stdout
    assert "BROKEN" in result.stdout
