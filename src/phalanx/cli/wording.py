"""How times, numbers and events read to a person. Pure: values in, text out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime

from phalanx.contract import ExitCode
from phalanx.events.kinds import Event, Kind

# No count, size or time is larger; what is came from a damaged file.
_LARGEST = 1e18
# Characters of a message shown in one line; the whole of it is in the log and in the events.
_LONGEST_LINE = 500


def duration(seconds: float | None) -> str:
    """`3.2 s`, `42 s`, `1m42s`, `2h05m`, `3d04h`; `-` for unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"


def size(count_bytes: float) -> str:
    """`812 B`, `12.3 MB`: decimal units, as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count_bytes < 1000:
            return f"{count_bytes:.0f} B" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} TB"


def number(value: float | None) -> str:
    """Four significant digits; `-` for unknown."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.4g}"


def rate(examples_per_s: float | None) -> str:
    """`812 examples/s`; `-` for unknown."""
    if examples_per_s is None or not math.isfinite(examples_per_s):
        return "-"
    shown = f"{examples_per_s:.0f}" if examples_per_s >= 10 else f"{examples_per_s:.2g}"
    return f"{shown} examples/s"


def metrics(values: Mapping[str, float]) -> str:
    """`auc 0.7012, loss 0.3127`."""
    return ", ".join(f"{one_line(name)} {number(value)}" for name, value in values.items())


def many(count: int, noun: str) -> str:
    """`1 worker`, `4 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def clock(time: float | None, form: str = "%H:%M:%S") -> str:
    """Unix seconds as local time; `-` for unknown or out of range."""
    if time is None:
        return "-"
    try:
        return datetime.fromtimestamp(time).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "-"


def one_line(text: object) -> str:
    """The first line of a text, cut when very long, with control characters made visible."""
    first = (str(text).splitlines() or [""])[0]
    return visible(first if len(first) <= _LONGEST_LINE else first[:_LONGEST_LINE] + " ...")


def visible(line: str) -> str:
    """A line with control characters made visible: a message may come from anywhere."""
    return "".join(c if c.isprintable() else _escape(c) for c in line)


def _escape(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else ascii(character)[1:-1]


def exit_code(code: int | None) -> str:
    """`137 (killed)`: the number with its name in the table."""
    if code is None:
        return "-"
    names = [known.name.lower().replace("_", " ") for known in ExitCode if known == code]
    return f"{code} ({names[0]})" if names else str(code)


def event_line(event: Event) -> str:
    """One event as one line, without its time."""
    return one_line(_WORDINGS[event.kind](event))


def _value(event: Event, key: str) -> float | None:
    """A finite number of the event's data; None for anything else."""
    value = event.data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _LARGEST:
        return None
    return float(value)


def _count(event: Event, key: str) -> str:
    value = _value(event, key)
    return "?" if value is None else f"{value:.0f}"


def _run_started(event: Event) -> str:
    workers = _value(event, "workers")
    size_of = many(int(workers), "worker") if workers is not None else "workers"
    return f"run {'resumed' if event.data.get('resumed') else 'started'}: {size_of}"


def _worker_exited(event: Event) -> str:
    code = _value(event, "exit_code")
    who = f"rank {event.rank}"
    if code == 0:
        return f"{who} is done"
    if event.data.get("after_kill") and code == ExitCode.KILLED:
        return f"{who} was killed to end the round"
    section, step = event.data.get("section"), _value(event, "step")
    where = f" in section {section}" if section and section != "setup" else ""
    where += f" at step {step:.0f}" if step else ""
    exception = _exception(event)
    why = f": {exception}" if exception else ""
    return f"{who} left with exit code {exit_code(None if code is None else int(code))}{where}{why}"


def _exception(event: Event) -> str:
    """`ValueError: its message`, `MemoryError` when it has none; empty without an exception."""
    name = str(event.data.get("exception", "")).rpartition(".")[2]
    message = event.data.get("message")
    return f"{name}: {message}" if name and message else name


def _round_ended(event: Event) -> str:
    cause = event.data.get("cause")
    took = f"round {event.round} ended after {duration(_value(event, 'seconds'))}"
    if cause == "finished":
        return f"{took}: the work is done"
    if cause == "stopped":
        return f"{took}: stopped"
    who = "" if event.rank is None else f"rank {event.rank}: "
    return f"{took}: {who}{_exception(event) or event.data.get('message') or cause}"


def _restarting(event: Event) -> str:
    delay_s = _value(event, "delay_s")
    when = f" in {duration(delay_s)}" if delay_s else ""
    return (
        f"restarting{when}: restart {_count(event, 'restarts_used')}, {_count(event, 'restarts_left')} left"
    )


def _stop_requested(event: Event) -> str:
    if event.data.get("now"):
        return f"asked again to stop by {event.data.get('by', '?')}: killing the workers"
    grace = duration(_value(event, "grace_s"))
    return f"asked to stop by {event.data.get('by', '?')}: the workers have {grace} to save and leave"


def _run_finished(event: Event) -> str:
    took = duration(_value(event, "seconds"))
    return f"run {event.data.get('state', '?')} after {took}: {event.data.get('reason', '')}"


def _training_started(event: Event) -> str:
    return f"training from step {_count(event, 'start_step')} to {_count(event, 'steps')}"


def _progress(event: Event) -> str:
    raw = event.data.get("metrics")
    values = {k: v for k, v in raw.items() if isinstance(v, (int, float))} if isinstance(raw, dict) else {}
    examples_per_s = _value(event, "examples_per_s")
    parts = [metrics(values)] if values else []
    if examples_per_s is not None:
        parts.append(rate(examples_per_s))
    return f"step {_count(event, 'step')}: {', '.join(parts)}"


def _checkpoint_committed(event: Event) -> str:
    count_bytes = _value(event, "bytes")
    how_large = f"{size(count_bytes)} in " if count_bytes is not None else ""
    cost = how_large + duration(_value(event, "seconds"))
    return f"checkpoint of step {_count(event, 'step')} committed ({cost})"


def _checkpoint_corrupt(event: Event) -> str:
    moved = f"; moved to {event.data['moved_to']}" if event.data.get("moved_to") else ""
    return f"checkpoint {event.data.get('path', '?')} is damaged: {event.data.get('message', '')}{moved}"


_WORDINGS: Mapping[Kind, Callable[[Event], str]] = {
    Kind.RUN_STARTED: _run_started,
    Kind.ROUND_STARTED: lambda e: f"round {e.round} started",
    Kind.WORKER_STARTED: lambda e: f"rank {e.rank} started (pid {_count(e, 'pid')})",
    Kind.WORKER_EXITED: _worker_exited,
    Kind.ROUND_ENDED: _round_ended,
    Kind.RESTARTING: _restarting,
    Kind.STOP_REQUESTED: _stop_requested,
    Kind.RUN_FINISHED: _run_finished,
    Kind.AGENT_LOST: lambda e: f"agent lost: {e.data.get('message', '')}",
    Kind.TRAINING_STARTED: _training_started,
    Kind.PROGRESS: _progress,
    Kind.EVALUATED: lambda e: f"evaluated at {_progress(e)}",
    Kind.TRAINING_FINISHED: lambda e: f"training finished at step {_count(e, 'step')}",
    Kind.CHECKPOINT_COMMITTED: _checkpoint_committed,
    Kind.CHECKPOINT_FAILED: lambda e: (
        f"checkpoint of step {_count(e, 'step')} failed: {e.data.get('message', '')}"
    ),
    Kind.CHECKPOINT_RESTORED: lambda e: (
        f"restored the checkpoint of step {_count(e, 'step')} in {duration(_value(e, 'seconds'))}"
    ),
    Kind.CHECKPOINT_CORRUPT: _checkpoint_corrupt,
    Kind.STEP_RESUMED: lambda e: f"training goes on: step {_count(e, 'step')} is done",
    Kind.WARNING: lambda e: (
        f"warning{'' if e.rank is None else f' of rank {e.rank}'}: {e.data.get('message', '')}"
    ),
}
