"""Every example runs as its own text says, with few steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.contract import EVENTS_FILE
from phalanx.events.kinds import Event, Kind
from phalanx.events.log import EventReader

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(240)]
EXAMPLES = Path(__file__).parents[2] / "examples"
PHALANX = Path(sys.executable).with_name("phalanx")


def phalanx_run(*arguments: str, home: Path) -> tuple[str, list[Event]]:
    """`phalanx run ARGUMENTS`, which must succeed; all logs of rank 0, and the events."""
    done = subprocess.run(
        [str(PHALANX), "run", "--plain", *arguments],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
        cwd=home,
        env={**os.environ, "PHALANX_HOME": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run_dir,) = (home / "runs").iterdir()
    log = "\n".join(path.read_text() for path in sorted(run_dir.glob("logs/*/rank-0.log")))
    return log, list(EventReader(run_dir / EVENTS_FILE).read_new())


def test_plain_loop_trains_on_two_workers_without_phalanx(tmp_path: Path) -> None:
    script = EXAMPLES / "plain_mwms" / "train.py"
    imports = [line for line in script.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert not [line for line in imports if "phalanx" in line]
    log, _ = phalanx_run(str(script), "-n", "2", "--", "--steps", "50", home=tmp_path)
    assert "rank 0: step 50 loss" in log
    assert (tmp_path / "checkpoints" / "checkpoint").exists()


def test_stock_keras_fit_trains_on_two_workers(tmp_path: Path) -> None:
    script = EXAMPLES / "keras_fit" / "train.py"
    log, _ = phalanx_run(str(script), "-n", "2", "--", "--epochs", "2", home=tmp_path)
    accuracy = float(log.rpartition("accuracy over all examples: ")[2].split()[0])
    assert accuracy > 0.9


def test_the_main_job_trains_validates_and_saves(tmp_path: Path) -> None:
    few = ["--set", "train.steps=12", "--set", "checkpoint.every_steps=6"]
    _, events = phalanx_run(str(EXAMPLES / "credit_risk" / "job.yaml"), *few, home=tmp_path)
    committed = [event.data["step"] for event in events if event.kind is Kind.CHECKPOINT_COMMITTED]
    assert committed == [6, 12]
    (evaluated,) = [event for event in events if event.kind is Kind.EVALUATED]
    assert 0.2 < evaluated.data["metrics"]["auc"] < 0.9
