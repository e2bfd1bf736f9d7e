"""Run directories: where they are, making one, and finding one by what a person types. Prints nothing."""

from __future__ import annotations

import difflib
import os
import re
import secrets
import shutil
from datetime import datetime
from pathlib import Path

from phalanx.contract import EVENTS_FILE, HOME_ENV, PLAN_FILE
from phalanx.errors import InfrastructureError, UsageError
from phalanx.plan.model import Plan

JOB_FILE_COPY = "job.yaml"
_RUN_ID = re.compile(r"(?P<job>.+)-\d{8}-\d{6}-[0-9a-f]{4}")
_SHOWN = 5


def runs_dir() -> Path:
    """The directory of all runs: `$PHALANX_HOME/runs`, by default `~/.phalanx/runs`."""
    home = os.environ.get(HOME_ENV)
    return (Path(home).expanduser().absolute() if home else Path.home() / ".phalanx") / "runs"


def job_of(run_id: str) -> str:
    """The job's name in a run id `NAME-YYYYmmdd-HHMMSS-xxxx`; the id itself when it is not of that form."""
    match = _RUN_ID.fullmatch(run_id)
    return match["job"] if match else run_id


def create(plan: Plan, now: datetime, job_text: str) -> Path:
    """Make the directory of a new run, with the plan and a copy of the job file (if any), and return it.

    It appears complete under its name (by rename), so that nobody finds half a run.
    Raises InfrastructureError when the disk is full or the home cannot be written.
    """
    parent = runs_dir()
    run_id = f"{plan.job}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    part = parent / f".new-{run_id}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(mode=0o700)  # the plan holds `env`, and with it what should not be read by all
        try:
            (part / PLAN_FILE).write_text(plan.to_json())
            (part / EVENTS_FILE).touch()
            if job_text:
                (part / JOB_FILE_COPY).write_text(job_text)
            return part.rename(parent / run_id)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise
    except OSError as error:
        raise InfrastructureError(
            f"the run directory {parent / run_id} cannot be made: {error.strerror}",
            f"free space there, or name a directory that you can write: {HOME_ENV}=DIR phalanx run ...",
        ) from error


def all_runs() -> list[Path]:
    """Every run directory, the newest first. Raises InfrastructureError when the home cannot be read."""
    try:
        with os.scandir(runs_dir()) as entries:
            found = [Path(entry) for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InfrastructureError(f"{runs_dir()} cannot be read: {error.strerror}") from error
    return sorted(found, key=lambda path: (_made_ns(path), path.name), reverse=True)


def find(text: str | None) -> Path:
    """The run that `text` names: a path, an id, a job's name (its newest run), or the beginning of an id.

    None is the newest run of all. Raises UsageError when there is none, or the beginning fits several.
    """
    runs = all_runs()
    if text is None:
        if not runs:
            raise UsageError(f"there is no run in {runs_dir()}", "start one with `phalanx run job.yaml`")
        return runs[0]
    if os.sep in text or text in (".", ".."):
        return _at_path(Path(text).expanduser().absolute())
    by_id = {run.name: run for run in runs}
    if text in by_id:
        return by_id[text]
    same_job = [run for run in runs if job_of(run.name) == text]
    if same_job:
        return same_job[0]
    begins = [run for run in runs if text and run.name.startswith(text)]
    if len(begins) == 1:
        return begins[0]
    if begins:
        shown = ", ".join(run.name for run in begins[:_SHOWN]) + (", ..." if len(begins) > _SHOWN else "")
        raise UsageError(f"{text!r} is the beginning of {len(begins)} runs: {shown}", "type more of the id")
    raise UsageError(f"there is no run {text!r} in {runs_dir()}", _nearest(text, runs))


def read_plan(run_dir: Path) -> Plan:
    """The plan of a run. Raises UsageError when it is missing or broken."""
    path = run_dir / PLAN_FILE
    try:
        return Plan.from_json(path.read_text())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "the run was not made by Phalanx"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} is broken or of another version of Phalanx: {error}",
            "start the job anew with `phalanx run`; its checkpoints are not touched",
        ) from error


def _at_path(path: Path) -> Path:
    if (path / PLAN_FILE).exists() or (path / EVENTS_FILE).exists():
        return path
    what = "holds no run" if path.is_dir() else "does not exist"
    raise UsageError(f"{path} {what}", f"a run directory has a {PLAN_FILE}; `phalanx list` shows all runs")


def _nearest(text: str, runs: list[Path]) -> str:
    """A hint: the names that look most like what was typed."""
    names = list(dict.fromkeys([run.name for run in runs] + [job_of(run.name) for run in runs]))
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else "`phalanx list` shows all runs"


def _made_ns(run_dir: Path) -> int:
    """When the run was made, in nanoseconds: ids only tell seconds. 0 when its plan is gone."""
    try:
        return (run_dir / PLAN_FILE).stat().st_mtime_ns
    except OSError:
        return 0
