"""The examples of docs/training.md run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
EXPECTED = [r"^100 \{'loss': [\d.]+, 'AUC': 0\.[89]", r"^20$", r"Epoch 2/2"]


def test_the_page_has_the_examples_that_are_tested_here() -> None:
    assert len(EXAMPLES) == len(EXPECTED)


@pytest.mark.parametrize("index", range(len(EXPECTED)))
def test_an_example_runs(index: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[index]],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(EXPECTED[index], done.stdout, flags=re.MULTILINE), done.stdout
    assert list(tmp_path.iterdir()) == []
