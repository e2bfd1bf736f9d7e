"""From events to a status: a fold, merged with what the boards say now. Pure: no files, no clock.

Nobody writes a status. `advance` takes one event at a time, so that a live view folds only what is new;
`observe` adds what is true only at the moment of looking: the boards and whether the agent is alive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from types import MappingProxyType
from typing import Any

from phalanx.contract import ExitCode
from phalanx.events.board import BoardReading
from phalanx.events.kinds import Event, Kind
from phalanx.events.status import CheckpointStatus, FailureStatus, RankStatus, RunState, RunStatus

# Causes of `round_ended` that are no failure (agent/policy.py).
_NO_FAILURE = ("finished", "stopped")


def fold(
    events: Iterable[Event],
    initial: RunStatus | None = None,
    *,
    boards: Mapping[int, BoardReading] | None = None,
    agent_alive: bool,
    now: float,
    monotonic_s: float,
) -> RunStatus:
    """The status after `events`; `initial` carries what the plan knows (job, world size, steps, budget)."""
    folded = reduce(advance, events, initial or RunStatus())
    return observe(folded, boards or {}, agent_alive=agent_alive, now=now, monotonic_s=monotonic_s)


def advance(status: RunStatus, event: Event) -> RunStatus:
    """The status after one more event. Data that is missing or of a wrong type counts as unknown."""
    handler = _HANDLERS.get(event.kind)
    return handler(status, event) if handler else status


def observe(
    status: RunStatus,
    boards: Mapping[int, BoardReading],
    *,
    agent_alive: bool,
    now: float,
    monotonic_s: float,
) -> RunStatus:
    """Add what is true at this moment; call it on the folded status, not on its own result.

    `boards` are those of `status.round` by rank; `now` is in Unix seconds, `monotonic_s` CLOCK_MONOTONIC.
    """
    if not agent_alive and not status.state.is_final:
        status = replace(
            status,
            state=RunState.LOST,
            exit_code=int(ExitCode.INFRASTRUCTURE),
            reason="the agent died without ending the run",
        )
    if not status.state.is_final:
        status = _with_boards(status, boards, monotonic_s)
    elif status.state is RunState.LOST:  # the boards tell how far it came, but no section lasts any more
        status = _with_boards(status, boards, None)
    elapsed_s = status.elapsed_s
    if elapsed_s is None and status.started is not None and not status.state.is_final:
        elapsed_s = max(0.0, now - status.started)
    return replace(status, elapsed_s=elapsed_s, eta_s=_eta_s(status, now))


# --- boards -------------------------------------------------------------------------------------------------


def _with_boards(
    status: RunStatus, boards: Mapping[int, BoardReading], monotonic_s: float | None
) -> RunStatus:
    if status.state is RunState.RESTARTING:  # these boards are of a round that is over
        return status
    ranks = tuple(_with_board(rank, boards.get(rank.rank), monotonic_s) for rank in status.ranks)
    status = replace(status, ranks=ranks)
    counting = [board for board in boards.values() if board.target_steps > 0]
    if not counting:
        return status
    chief = boards.get(0, counting[0])
    return replace(
        status,
        step=max(board.steps_done for board in counting),
        target_steps=counting[0].target_steps,
        start_step=counting[0].start_step,
        loss=_finite(chief.loss, status.loss),
        examples_per_s=_finite(chief.examples_per_s, status.examples_per_s),
    )


def _with_board(rank: RankStatus, board: BoardReading | None, monotonic_s: float | None) -> RankStatus:
    if board is None or rank.exit_code is not None:
        return rank
    return replace(
        rank,
        section=board.section,
        section_s=None if monotonic_s is None else max(0.0, monotonic_s - board.section_since_s),
        step=board.steps_done,
        loss=_finite(board.loss, None),
    )


# The first step of a round compiles and takes as long as many others: it says nothing about the rest.
_STEPS_FOR_A_RATE = 20


def _eta_s(status: RunStatus, now: float) -> float | None:
    """Seconds to the last step at the present rate; None when there is no rate."""
    if status.state is not RunState.RUNNING or status.step is None or not status.target_steps:
        return None
    left = status.target_steps - status.step
    if status.examples_per_s and status.global_batch:
        return left * status.global_batch / status.examples_per_s
    done = status.step - status.start_step
    if status.training_since is None or done < _STEPS_FOR_A_RATE:
        return None
    return left * max(0.0, now - status.training_since) / done


# --- events -------------------------------------------------------------------------------------------------


def _run_started(status: RunStatus, event: Event) -> RunStatus:
    """A run starts, or starts again: what belonged to its last life is forgotten, what it reached is not."""
    return replace(
        status,
        job=_text(event, "job") or status.job,
        world_size=_integer(event, "workers") or status.world_size,
        state=RunState.STARTING,
        created=status.created or event.time,
        started=event.time,
        finished=None,
        elapsed_s=None,
        restart_at=None,
        restarts_used=0,
        ranks=(),
        examples_per_s=None,
        failed_at=None,
        exit_code=None,
        reason="",
        hint="",
    )


def _round_started(status: RunStatus, event: Event) -> RunStatus:
    size = _integer(event, "world_size") or status.world_size
    stopping = status.state is RunState.STOPPING
    return replace(
        status,
        state=RunState.STOPPING if stopping else RunState.RUNNING,
        round=event.round or status.round,
        world_size=size,
        ranks=tuple(RankStatus(rank) for rank in range(size)),
        # Where training will go on, as far as is known before it tells.
        step=None if status.step is None else (status.checkpoint.step if status.checkpoint else 0),
        loss=None,
        examples_per_s=None,
        training_since=None,
        restart_at=None,
    )


def _worker_started(status: RunStatus, event: Event) -> RunStatus:
    log = _text(event, "log")
    if log and event.round is not None and event.rank is not None:
        status = replace(status, logs=MappingProxyType({**status.logs, (event.round, event.rank): log}))
    return _with_rank(status, event, pid=_integer(event, "pid"), log=log or None)


def _worker_exited(status: RunStatus, event: Event) -> RunStatus:
    rank = _rank_of(status, event)
    if rank is None:
        return status
    exit_code = _integer(event, "exit_code")
    if exit_code and not _has_failed(status):
        status = replace(status, failed_at=event.time)
    status = replace(status, step=_reached(status, event))
    return _with_rank(
        status,
        event,
        exit_code=exit_code,
        section=_text(event, "section") or rank.section,
        step=_integer(event, "step") or rank.step,
        section_s=None,
    )


def _round_ended(status: RunStatus, event: Event) -> RunStatus:
    cause = _text(event, "cause")
    if cause in _NO_FAILURE:
        return status
    details = event.data.get("details")
    failure = FailureStatus(
        time=event.time,
        round=event.round,
        rank=event.rank,
        cause=cause,
        section=_text(event, "section"),
        step=_integer(event, "step"),
        exception=_text(event, "exception"),
        message=_text(event, "message"),
        hint=_text(event, "hint"),
        details=tuple(str(line) for line in details) if isinstance(details, list) else (),
    )
    failed_at = status.failed_at if _has_failed(status) else event.time
    return replace(status, failure=failure, failed_at=failed_at, recovery_s=None)


def _restarting(status: RunStatus, event: Event) -> RunStatus:
    used, left = _integer(event, "restarts_used"), _integer(event, "restarts_left")
    return replace(
        status,
        state=RunState.RESTARTING,
        restarts_used=status.restarts_used if used is None else used,
        max_restarts=status.max_restarts if used is None or left is None else used + left,
        restart_at=event.time + (_number(event.data.get("delay_s")) or 0.0),
    )


def _stop_requested(status: RunStatus, event: Event) -> RunStatus:
    return status if status.state.is_final else replace(status, state=RunState.STOPPING)


def _run_finished(status: RunStatus, event: Event) -> RunStatus:
    named = _text(event, "state")
    known = named in (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED)
    return replace(
        status,
        state=RunState(named) if known else RunState.FAILED,
        exit_code=_integer(event, "exit_code"),
        reason=_text(event, "reason"),
        hint=_text(event, "hint"),
        finished=event.time,
        elapsed_s=_number(event.data.get("seconds")),
    )


def _agent_lost(status: RunStatus, event: Event) -> RunStatus:
    if status.state.is_final:
        return status
    return replace(
        status,
        state=RunState.LOST,
        exit_code=int(ExitCode.INFRASTRUCTURE),
        reason=_text(event, "message") or "the agent died without ending the run",
        finished=event.time,
        elapsed_s=event.time - status.started if status.started is not None else None,
    )


def _training_started(status: RunStatus, event: Event) -> RunStatus:
    if _is_late(status, event):
        return status
    start_step = _integer(event, "start_step") or 0
    return replace(
        status,
        step=start_step,
        start_step=start_step,
        target_steps=_integer(event, "steps") or status.target_steps,
        global_batch=_integer(event, "global_batch"),
        training_since=event.time,
    )


def _progress(status: RunStatus, event: Event) -> RunStatus:
    if _is_late(status, event):
        return status
    return replace(
        status,
        step=_reached(status, event),
        loss=_finite(_number(event.data.get("loss")), status.loss),
        examples_per_s=_finite(_number(event.data.get("examples_per_s")), status.examples_per_s),
        metrics=_numbers(event) or status.metrics,
    )


def _evaluated(status: RunStatus, event: Event) -> RunStatus:
    return replace(status, evaluated=_numbers(event), evaluated_step=_integer(event, "step"))


def _training_finished(status: RunStatus, event: Event) -> RunStatus:
    return replace(status, step=_reached(status, event), metrics=_numbers(event) or status.metrics)


def _checkpoint_committed(status: RunStatus, event: Event) -> RunStatus:
    step = _integer(event, "step")
    if step is None:
        return status
    committed = CheckpointStatus(step, _text(event, "path"), event.time)
    return replace(status, checkpoint=committed, step=_reached(status, event))


def _step_resumed(status: RunStatus, event: Event) -> RunStatus:
    if status.failed_at is None:
        return status
    return replace(status, recovery_s=max(0.0, event.time - status.failed_at), failed_at=None)


def _warning(status: RunStatus, event: Event) -> RunStatus:
    return replace(status, warnings=status.warnings + 1)


_HANDLERS: Mapping[Kind, Callable[[RunStatus, Event], RunStatus]] = {
    Kind.RUN_STARTED: _run_started,
    Kind.ROUND_STARTED: _round_started,
    Kind.WORKER_STARTED: _worker_started,
    Kind.WORKER_EXITED: _worker_exited,
    Kind.ROUND_ENDED: _round_ended,
    Kind.RESTARTING: _restarting,
    Kind.STOP_REQUESTED: _stop_requested,
    Kind.RUN_FINISHED: _run_finished,
    Kind.AGENT_LOST: _agent_lost,
    Kind.TRAINING_STARTED: _training_started,
    Kind.PROGRESS: _progress,
    Kind.EVALUATED: _evaluated,
    Kind.TRAINING_FINISHED: _training_finished,
    Kind.CHECKPOINT_COMMITTED: _checkpoint_committed,
    Kind.STEP_RESUMED: _step_resumed,
    Kind.WARNING: _warning,
}


def _rank_of(status: RunStatus, event: Event) -> RankStatus | None:
    """The worker of the present round that the event is about."""
    if event.rank is None or event.round != status.round:
        return None
    return next((rank for rank in status.ranks if rank.rank == event.rank), None)


def _has_failed(status: RunStatus) -> bool:
    """Whether a worker of the present round has failed: `failed_at` is then the time of the first."""
    return any(rank.exit_code for rank in status.ranks)


def _with_rank(status: RunStatus, event: Event, **changes: Any) -> RunStatus:
    changed = _rank_of(status, event)
    if changed is None:
        return status
    ranks = tuple(replace(rank, **changes) if rank is changed else rank for rank in status.ranks)
    return replace(status, ranks=ranks)


def _is_late(status: RunStatus, event: Event) -> bool:
    """Whether a worker of an earlier round is speaking."""
    return event.round is not None and event.round < status.round


def _reached(status: RunStatus, event: Event) -> int | None:
    """The step of the run after an event that tells of one; a script that never began training has none."""
    step = _integer(event, "step")
    if step is None or (status.step is None and not step) or _is_late(status, event):
        return status.step
    return max(step, status.step or 0)


def _text(event: Event, key: str) -> str:
    value = event.data.get(key)
    return value if isinstance(value, str) else ""


def _integer(event: Event, key: str) -> int | None:
    value = event.data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON's integers have no limit
        return None


def _numbers(event: Event) -> Mapping[str, float]:
    """The metrics of an event, without what is no number."""
    raw = event.data.get("metrics")
    if not isinstance(raw, dict):
        return MappingProxyType({})
    pairs = ((str(name), _number(value)) for name, value in raw.items())
    return MappingProxyType({name: value for name, value in pairs if value is not None})


def _finite(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None or not math.isfinite(value) else value
