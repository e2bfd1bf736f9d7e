"""What `phalanx init` writes runs at once, under `phalanx run` and as a plain script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launching import phalanx
from phalanx.contract import ExitCode

pytestmark = pytest.mark.tensorflow


def test_the_first_job_runs(tmp_path: Path) -> None:
    assert phalanx("init", str(tmp_path / "first")).code == ExitCode.SUCCESS
    ended = phalanx("run", "first/job.yaml", "--set", "train.steps=100", cwd=tmp_path, timeout_s=200)
    assert ended.code == ExitCode.SUCCESS, ended.stderr
    assert "steps       100 of 100" in ended.stdout
    plain = subprocess.run(
        [sys.executable, "train.py", "--learning-rate", "0.02"],
        cwd=tmp_path / "first",
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert plain.returncode == 0, plain.stderr
    line = plain.stdout.splitlines()[-1]
    assert line.startswith("step 300: accuracy on new points 0.9")
