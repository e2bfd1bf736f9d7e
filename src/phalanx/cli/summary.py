"""A run's status as lines of text and as a JSON document. Pure: a status in, text or data out.

The keys of the document are a promise (docs/running.md lists them): they are added to, never renamed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phalanx.cli import wording
from phalanx.events.status import FailureStatus, RankStatus, RunState, RunStatus

_LABEL_WIDTH = 12
_PROBLEM_STATES = (RunState.FAILED, RunState.LOST, RunState.RESTARTING)


def summary(
    run_id: str,
    status: RunStatus,
    checkpoint_dir: Path | None,
    *,
    detail_lines: int = 15,
    ranks: bool = False,
) -> str:
    """What a person wants to know of a run; `ranks` adds a table of the workers."""
    lines = [f"{run_id}: {status.state.value}"]
    lines += [_fact(label, text) for label, text in _facts(status, checkpoint_dir)]
    if ranks and status.ranks:
        lines += ["", *rank_table(status)]
    if status.failure is not None and status.state in _PROBLEM_STATES:
        lines += ["", *_failure(status.failure, status, detail_lines)]
    lines += _next(run_id, status)
    return "\n".join(lines)


def document(
    run_dir: Path,
    status: RunStatus,
    *,
    agent_alive: bool,
    checkpoint_dir: Path | None,
    problems: tuple[str, ...],
) -> dict[str, Any]:
    """The status as JSON data; times are Unix seconds, null is "unknown"."""
    return {
        "run": run_dir.name,
        "job": status.job,
        "state": status.state.value,
        "dir": str(run_dir),
        "agent_alive": agent_alive,
        "exit_code": status.exit_code,
        "reason": status.reason,
        "hint": status.hint,
        "created": status.created,
        "started": status.started,
        "finished": status.finished,
        "elapsed_s": status.elapsed_s,
        "world_size": status.world_size,
        "round": status.round,
        "restarts_used": status.restarts_used,
        "restarts_left": status.restarts_left,
        "step": status.step,
        "target_steps": status.target_steps,
        "loss": status.loss,
        "examples_per_s": status.examples_per_s,
        "eta_s": status.eta_s,
        "metrics": dict(status.metrics),
        "evaluated_step": status.evaluated_step,
        "evaluated": dict(status.evaluated),
        "checkpoint": asdict(status.checkpoint) if status.checkpoint else None,
        "checkpoint_dir": str(checkpoint_dir) if checkpoint_dir else None,
        "failure": asdict(status.failure) if status.failure else None,
        "recovery_s": status.recovery_s,
        "ranks": [asdict(rank) for rank in status.ranks],
        "warnings": status.warnings,
        "problems": list(problems),
    }


def to_json(data: Any, *, indent: int | None = None) -> str:
    """JSON as the standard has it: numbers that are not finite become null."""
    return json.dumps(_finite(data), indent=indent, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return None
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return data


def steps_text(status: RunStatus) -> str:
    """`120 of 600`; `-` when no worker told its step."""
    if status.step is None:
        return "-"
    return f"{status.step} of {status.target_steps}" if status.target_steps else str(status.step)


def rank_table(status: RunStatus) -> list[str]:
    """The workers of the present round, one a line under a heading, in columns."""
    rows: list[tuple[str, ...]] = [("rank", "section", "for", "step", "loss", "pid", "exit")]
    rows += [_rank_row(rank, status) for rank in status.ranks]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _rank_row(rank: RankStatus, status: RunStatus) -> tuple[str, ...]:
    return (
        str(rank.rank),
        rank.section,
        wording.duration(rank.section_s),
        "-" if status.step is None else str(rank.step),
        wording.number(rank.loss),
        "-" if rank.pid is None else str(rank.pid),
        wording.exit_code(rank.exit_code),
    )


def _fact(label: str, text: str) -> str:
    return f"  {label:<{_LABEL_WIDTH}}{text}"


def _facts(status: RunStatus, checkpoint_dir: Path | None) -> Iterator[tuple[str, str]]:
    if status.elapsed_s is not None:
        yield "time", wording.duration(status.elapsed_s)
    if status.step is not None:
        eta = f", {wording.duration(status.eta_s)} to go" if status.eta_s is not None else ""
        yield "steps", steps_text(status) + eta
    if status.round:
        left = "" if status.restarts_left is None else f", {status.restarts_left} left"
        yield "rounds", f"{status.round} ({wording.many(status.restarts_used, 'restart')}{left})"
    if status.recovery_s is not None:
        yield "recovery", f"{wording.duration(status.recovery_s)} from the failure to the first step after it"
    if not status.state.is_final and status.examples_per_s is not None:
        yield "speed", wording.rate(status.examples_per_s)
    if status.metrics:
        yield "metrics", wording.metrics(status.metrics)
    if status.evaluated:
        at = "" if status.evaluated_step is None else f" (step {status.evaluated_step})"
        yield "evaluated", wording.metrics(status.evaluated) + at
    if status.checkpoint is not None:
        yield "checkpoint", f"step {status.checkpoint.step}: {status.checkpoint.path}"
    elif checkpoint_dir is not None and status.step is not None:
        yet = "" if status.state.is_final else " yet"  # there may be some of an earlier run
        yield "checkpoint", f"none by this run{yet} in {checkpoint_dir}"
    if status.warnings:
        yield "warnings", f"{status.warnings} (`phalanx events` shows them)"
    if status.exit_code:
        yield "exit code", wording.exit_code(status.exit_code)
    if status.reason and status.state is not RunState.SUCCEEDED:
        yield "because", wording.one_line(_why(status))


def _why(status: RunStatus) -> str:
    """The reason without the failure that is told below it anyway."""
    if status.failure is None or status.state is not RunState.FAILED:
        return status.reason
    told = status.failure.summary + "; "
    return status.reason.removeprefix(told)


def _failure(failure: FailureStatus, status: RunStatus, detail_lines: int) -> Iterator[str]:
    """The root cause, with the last lines of its traceback or log."""
    where = f"round {failure.round}"
    if failure.section:
        where += f", section {failure.section}"
    if failure.step is not None and status.step is not None:
        where += f", step {failure.step}"
    yield f"  first failure: {wording.one_line(failure.summary)} ({where})"
    details = failure.details or failure.message.splitlines()[1:]  # a traceback ends with the message
    if detail_lines:
        yield from (
            f"    | {wording.visible(line.expandtabs().rstrip())}" for line in details[-detail_lines:]
        )
    if failure.round is not None and failure.rank is not None:
        log = status.logs.get((failure.round, failure.rank))
        if log:
            yield _fact("log", log)
    if failure.hint:
        yield _fact("hint", wording.one_line(failure.hint))


def _next(run_id: str, status: RunStatus) -> Iterator[str]:
    """What to type next."""
    if status.hint and (status.failure is None or status.hint != status.failure.hint):
        yield _fact("hint", wording.one_line(status.hint))
    if status.state in (RunState.FAILED, RunState.STOPPED, RunState.LOST):
        yield _fact("go on with", f"phalanx resume {run_id}")
