"""Job file, overrides or a command line -> `LoadedJob`. Owns reading the file and telling all that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phalanx.spec.job import LoadedJob

__all__ = ["LoadedJob", "job_from_script", "load_job"]


def load_job(path: Path, overrides: Sequence[str] = ()) -> LoadedJob:
    """Read the job file at `path`; `overrides` are the texts of `--set`, such as "train.steps=200".

    Raises SpecError with every problem found, each with its place.
    """
    raise AssertionError("being written")


def job_from_script(
    script: Path, workers: int, args: Sequence[str] = (), overrides: Sequence[str] = ()
) -> LoadedJob:
    """The job of `phalanx run train.py -n 4 -- args`: no job file, workers start in the current directory.

    Raises SpecError with every problem found, each with its place on the command line.
    """
    raise AssertionError("being written")
