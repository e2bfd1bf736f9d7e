"""What can happen in a run: the kinds of events and what each carries.

Append-only: never rename or reuse a kind.

An event is a fact with a time. `status` is a fold over events; nobody writes a status.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Kind(str, Enum):
    """Event kinds. The comment names the writer and the keys of `data`."""

    RUN_STARTED = "run_started"  # agent: job, workers, resumed (bool), pid
    ROUND_STARTED = "round_started"  # agent: world_size, addresses, chief; `round` is set from here on
    WORKER_STARTED = "worker_started"  # agent: pid, log
    WORKER_EXITED = (
        "worker_exited"  # agent: exit_code, section, step; after_kill; exception, message of its report
    )
    ROUND_ENDED = (
        "round_ended"  # agent: cause (agent/policy.py), seconds; `rank` of the root cause, exit_code,
    )
    # section, step, exception, message, hint, details (last lines of its traceback, else of its log)
    RESTARTING = "restarting"  # agent: restarts_used, restarts_left, delay_s, reason
    STOP_REQUESTED = "stop_requested"  # agent: by (signal name), grace_s; second request: now=true
    RUN_FINISHED = (
        "run_finished"  # agent: state (succeeded|failed|stopped), exit_code, reason, seconds, cause, hint
    )
    AGENT_LOST = "agent_lost"  # launcher: message; the agent died without finishing the run
    TRAINING_STARTED = (
        "training_started"  # chief: start_step, steps, resumed_from, global_batch, precision, xla
    )
    PROGRESS = "progress"  # chief, at log points: step, loss, metrics, examples_per_s
    EVALUATED = "evaluated"  # chief: step, metrics
    TRAINING_FINISHED = "training_finished"  # chief: step, metrics, seconds
    CHECKPOINT_COMMITTED = "checkpoint_committed"  # chief: step, path, bytes, seconds
    CHECKPOINT_FAILED = "checkpoint_failed"  # chief: step, message; training goes on
    CHECKPOINT_RESTORED = "checkpoint_restored"  # chief: step, path, seconds
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"  # who found it: path, moved_to, message
    STEP_RESUMED = "step_resumed"  # chief: step; the first step done after a restore
    WARNING = "warning"  # anyone: message


@dataclass(frozen=True)
class Event:
    """One fact: `time` in Unix seconds, `round` and `rank` where they apply, `data` as the kind says."""

    time: float
    kind: Kind
    round: int | None = None
    rank: int | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def to_line(self) -> str:
        """One line of JSON without the newline."""
        raw: dict[str, Any] = {"time": round(self.time, 6), "kind": self.kind.value}
        if self.round is not None:
            raw["round"] = self.round
        if self.rank is not None:
            raw["rank"] = self.rank
        if self.data:
            raw["data"] = self.data
        return json.dumps(raw, separators=(",", ":"), default=str)

    @classmethod
    def from_line(cls, line: str) -> Event:
        """Read back one line. Raises ValueError for what is no event of a kind known here."""
        raw = json.loads(line)
        if not isinstance(raw, dict):
            raise ValueError("an event is a JSON object")
        event = cls(
            raw.get("time", ""), Kind(raw.get("kind")), raw.get("round"), raw.get("rank"), raw.get("data", {})
        )
        counts = _is_count(event.round) and _is_count(event.rank)
        if not (_is_number(event.time) and counts and isinstance(event.data, dict)):
            raise ValueError("a field of the event has the wrong type")
        return event


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))
