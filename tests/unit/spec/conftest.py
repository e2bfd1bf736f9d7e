"""A job file to write, load and break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.errors import SpecError
from phalanx.spec.load import load_job

Broken = Callable[..., str]

VALID = """\
apiVersion: phalanx/v1
kind: TrainingJob
name: credit-risk
entrypoint: train.py
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the job file and its script are."""
    (tmp_path / "train.py").touch()
    return tmp_path


@pytest.fixture
def job_file(directory: Path) -> Callable[[str], Path]:
    """Write a job file: the four keys that every job needs, and the lines given."""

    def write(more: str = "", text: str = VALID) -> Path:
        path = directory / "job.yaml"
        path.write_text(text + more, encoding="utf-8")
        return path

    return write


@pytest.fixture
def message_of(job_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Broken:
    """What loading a broken job file says; its own text begins at line 5 of the file."""

    def load(more: str = "", *overrides: str, text: str = VALID) -> str:
        path = job_file(more, text)
        monkeypatch.chdir(path.parent)
        with pytest.raises(SpecError) as caught:
            load_job(Path(path.name), overrides)
        return caught.value.message

    return load
