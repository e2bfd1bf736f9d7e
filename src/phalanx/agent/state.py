"""The agent's state machine: `step(state, event) -> (state, commands)`. No I/O and no clock.

Every event carries the time at which it happened (monotonic seconds); `state.deadline_s` says when the
machine wants a `DeadlinePassed` at the latest. `agent/loop.py` brings events and carries out commands.

    JOINING --RoundFormed--> RUNNING --all left with 0--> FINISHED
       ^                        |--a rank lost its peer--> JUDGING --2 s, or the root cause shows--+
       |                        |--a rank failed-------------------------------------------------> ENDING
       +--WAITING <--restart----|--StopRequested--> STOPPING --grace passed, or asked again-----------^
             ENDING (SIGKILL sent) --all gone--> WAITING or FINISHED
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, TypeAlias

from phalanx.agent.policy import (
    Cause,
    Exit,
    Failure,
    History,
    Progress,
    Verdict,
    cause_of,
    judge,
    remember,
    root_cause,
    table_code,
)
from phalanx.contract import ExitCode
from phalanx.events.kinds import Kind
from phalanx.plan.model import FailurePlan
from phalanx.rendezvous.round import Round

# A rank that lost its peer may be seen before the peer: how long to wait for the root cause.
ROOT_CAUSE_WAIT_S = 2.0
# How long a rank may be seen waiting for one that has left: boards are read ten times a second.
JOIN_LOOK_S = 2.0
# A process that is still there so long after SIGKILL hangs in the kernel (a dead disk); no wait is endless.
KILL_WAIT_S = 20.0


class Phase(Enum):
    """Where the agent stands; the drawing is in the module's docstring."""

    JOINING = auto()
    RUNNING = auto()
    JUDGING = auto()
    STOPPING = auto()
    ENDING = auto()
    WAITING = auto()
    FINISHED = auto()


@dataclass(frozen=True)
class RoundFormed:
    """The round exists; `restarts_used` is what the store says of the budget."""

    at_s: float
    round: Round
    restarts_used: int


@dataclass(frozen=True)
class RoundFailed:
    """The round could not be formed: no port, no disk, a checkpoint directory that another run owns."""

    at_s: float
    exit_code: int
    message: str
    hint: str = ""


@dataclass(frozen=True)
class ProcessExited:
    """A worker is gone, or could not be started."""

    at_s: float
    exit: Exit


@dataclass(frozen=True)
class ProgressSeen:
    """A worker's board changed."""

    at_s: float
    rank: int
    progress: Progress


@dataclass(frozen=True)
class StopRequested:
    """Somebody asked to stop: `by` says who, `exit_code` is the run's code then.

    A second request kills, unless it does not `insist`: the end of a launcher that has asked is no new wish.
    """

    at_s: float
    by: str
    exit_code: int
    insist: bool = True


@dataclass(frozen=True)
class DeadlinePassed:
    """`state.deadline_s` has passed."""

    at_s: float


Event: TypeAlias = RoundFormed | RoundFailed | ProcessExited | ProgressSeen | StopRequested | DeadlinePassed


@dataclass(frozen=True)
class Join:
    """Take the fence, hold fresh ports, form round `number`; `after_failure_of` is charged to the budget."""

    number: int
    after_failure_of: int | None = None


@dataclass(frozen=True)
class Start:
    """Start every worker of the round that was formed."""


@dataclass(frozen=True)
class Stop:
    """SIGTERM to every worker."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL to the process group of every worker."""


@dataclass(frozen=True)
class Release:
    """The round is over: kill what its workers left behind, forget them, give the ports back."""


@dataclass(frozen=True)
class Record:
    """Append an event."""

    kind: Kind
    round: int | None = None
    rank: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Leave:
    """End the agent with this exit code."""

    exit_code: int


Command: TypeAlias = Join | Start | Stop | Kill | Release | Record | Leave


@dataclass(frozen=True)
class State:
    """All that the agent knows. `alive` are the ranks whose process has not been seen to end."""

    limits: FailurePlan
    phase: Phase
    round_number: int
    began_s: float
    first_round: int
    history: History = field(default_factory=History)
    alive: frozenset[int] = frozenset()
    exits: tuple[Exit, ...] = ()
    progress: Mapping[int, Progress] = field(default_factory=dict)
    round_began_s: float = 0.0
    deadline_s: float | None = None
    stop: StopRequested | None = None
    overdue: tuple[int, ...] = ()


Step: TypeAlias = tuple[State, tuple[Command, ...]]


def begin(limits: FailurePlan, first_round: int, at_s: float) -> Step:
    """The first step: join the first round."""
    return State(limits, Phase.JOINING, first_round, at_s, first_round), (Join(first_round),)


def step(state: State, event: Event) -> Step:
    """What the agent does on an event. Events that come too late for the phase change nothing."""
    if state.phase is Phase.FINISHED:
        return state, ()
    handler: Callable[[State, Any], Step] = _HANDLERS[type(event)]
    return handler(state, event)


def _round_formed(state: State, event: RoundFormed) -> Step:
    if state.phase is not Phase.JOINING:
        return state, ()
    formed = event.round
    running = replace(
        state,
        phase=Phase.RUNNING,
        history=replace(state.history, restarts_used=event.restarts_used),
        alive=frozenset(range(formed.world_size)),
        exits=(),
        progress={},
        round_began_s=event.at_s,
        overdue=(),
    )
    data = {"world_size": formed.world_size, "addresses": list(formed.addresses), "chief": formed.chief}
    return running, (Record(Kind.ROUND_STARTED, formed.number, data=data), Start())


def _round_failed(state: State, event: RoundFailed) -> Step:
    if state.phase is not Phase.JOINING:
        return state, ()
    cause = Cause.CHECKPOINT if event.exit_code == ExitCode.CHECKPOINT else Cause.INFRASTRUCTURE
    failure = Failure(None, cause, event.exit_code, "setup", 0, event.message, hint=event.hint)
    if state.round_number == state.first_round or event.exit_code == ExitCode.USAGE:
        # What is wrong before anything ran is for the person who just typed the command.
        return _finish(state, event.at_s, "failed", event.exit_code, event.message, failure)
    return _failed(replace(state, progress={}, round_began_s=event.at_s), event.at_s, failure)


def _process_exited(state: State, event: ProcessExited) -> Step:
    exit = event.exit
    if exit.rank not in state.alive:
        return state, ()
    seen = replace(
        state,
        alive=state.alive - {exit.rank},
        exits=(*state.exits, exit),
        progress={**state.progress, exit.rank: exit.progress},
    )
    told = (_exit_record(state.round_number, exit),)
    if not seen.alive:
        return _and_then(told, _all_gone(seen, event.at_s))
    cause = cause_of(exit)
    if cause is None and seen.phase is Phase.RUNNING:
        return replace(seen, deadline_s=seen.deadline_s or event.at_s + JOIN_LOOK_S), told
    if cause is None or seen.phase not in (Phase.RUNNING, Phase.JUDGING):
        return seen, told
    if cause is Cause.PEER_LOST:
        if seen.phase is Phase.RUNNING:
            seen = replace(seen, phase=Phase.JUDGING, deadline_s=event.at_s + ROOT_CAUSE_WAIT_S)
        return seen, told
    return _and_then(told, _kill(seen, event.at_s))


def _progress_seen(state: State, event: ProgressSeen) -> Step:
    if event.rank not in state.alive:
        return state, ()
    return replace(state, progress={**state.progress, event.rank: event.progress}), ()


def _stop_requested(state: State, event: StopRequested) -> Step:
    again = state.stop is not None
    if again and not event.insist:
        return state, ()
    data: dict[str, Any] = {"by": event.by, "grace_s": state.limits.grace_s}
    if again:
        data["now"] = True
    told = (Record(Kind.STOP_REQUESTED, state.round_number, data=data),)
    stopped = replace(state, stop=state.stop or event)
    if state.phase in (Phase.JOINING, Phase.WAITING):
        return _and_then(told, _stopped(stopped, event.at_s))
    if state.phase is Phase.ENDING:
        return stopped, told
    if again:
        return _and_then(told, _kill(stopped, event.at_s))
    deadline_s = event.at_s + state.limits.grace_s
    return replace(stopped, phase=Phase.STOPPING, deadline_s=deadline_s), (*told, Stop())


def _deadline_passed(state: State, event: DeadlinePassed) -> Step:
    if state.deadline_s is None or event.at_s < state.deadline_s:
        return state, ()
    if state.phase is Phase.WAITING:
        number = state.round_number + 1
        joining = replace(state, phase=Phase.JOINING, round_number=number, deadline_s=None)
        return joining, (Join(number, after_failure_of=state.round_number),)
    if state.phase is Phase.STOPPING:
        return _kill(replace(state, overdue=tuple(sorted(state.alive))), event.at_s)
    if state.phase is Phase.JUDGING:
        return _kill(state, event.at_s)
    if state.phase is Phase.ENDING:
        return _unkillable(state, event.at_s)
    if state.phase is Phase.RUNNING:
        return _look_for_left_alone(state, event.at_s)
    return state, ()


def _look_for_left_alone(state: State, at_s: float) -> Step:
    """Some ranks have left with 0. A rank that still waits for all to join will wait for ever."""
    if not any(rank in state.alive and one.section == "join" for rank, one in state.progress.items()):
        return replace(state, deadline_s=at_s + JOIN_LOOK_S), ()
    exits = tuple(replace(exit, left_alone=exit.exit_code == 0) for exit in state.exits)
    return _kill(replace(state, exits=exits), at_s)


_HANDLERS: Mapping[type, Callable[[State, Any], Step]] = {
    RoundFormed: _round_formed,
    RoundFailed: _round_failed,
    ProcessExited: _process_exited,
    ProgressSeen: _progress_seen,
    StopRequested: _stop_requested,
    DeadlinePassed: _deadline_passed,
}


def _and_then(first: tuple[Command, ...], second: Step) -> Step:
    return second[0], (*first, *second[1])


def _kill(state: State, at_s: float) -> Step:
    return replace(state, phase=Phase.ENDING, deadline_s=at_s + KILL_WAIT_S), (Kill(),)


def _all_gone(state: State, at_s: float) -> Step:
    """Every worker of the round has ended: judge the round."""
    if state.stop is not None:
        return _stopped(state, at_s)
    failure = root_cause(state.exits)
    if failure is not None:
        return _failed(state, at_s, failure)
    ended = _round_ended(state, at_s, Cause.FINISHED)
    return _and_then((Release(), ended), _finish(state, at_s, "succeeded", 0, "the work is done"))


def _failed(state: State, at_s: float, failure: Failure) -> Step:
    """A round failed: restart or give up."""
    lasted_s = at_s - state.round_began_s
    history, repeated = remember(state.history, failure, tuple(state.progress.values()), lasted_s)
    verdict = judge(failure, history, repeated, state.limits)
    state = replace(state, history=history, exits=(), overdue=())
    told = (Release(), _round_ended(state, at_s, failure.cause, failure))
    if not verdict.restart:
        return _and_then(told, _finish(state, at_s, "failed", verdict.exit_code, verdict.reason, failure))
    waiting = replace(state, phase=Phase.WAITING, alive=frozenset(), deadline_s=at_s + verdict.delay_s)
    return waiting, (*told, _restarting(state, verdict))


def _restarting(state: State, verdict: Verdict) -> Record:
    used = state.history.restarts_used + 1
    data = {
        "restarts_used": used,
        "restarts_left": state.limits.max_restarts - used,
        "delay_s": verdict.delay_s,
        "reason": verdict.reason,
    }
    return Record(Kind.RESTARTING, state.round_number, data=data)


def _stopped(state: State, at_s: float) -> Step:
    """A stop that was asked for is complete; workers that did not leave as asked are named."""
    assert state.stop is not None
    notes = [f"rank {rank} was killed after {state.limits.grace_s:g} s of grace" for rank in state.overdue]
    unasked = (Cause.PREEMPTED, Cause.PEER_LOST, Cause.TERMINATED, Cause.EARLY_EXIT, None)
    notes += [
        f"rank {exit.rank} failed while stopping: {exit.report.message if exit.report else exit.exit_code}"
        for exit in state.exits
        if cause_of(exit) not in unasked
    ]
    reason = "; ".join([f"stopped by {state.stop.by}", *notes])
    ended: tuple[Command, ...] = ()
    if state.exits:
        ended = (_round_ended(state, at_s, Cause.STOPPED, message=reason),)
    return _and_then((Release(), *ended), _finish(state, at_s, "stopped", state.stop.exit_code, reason))


def _unkillable(state: State, at_s: float) -> Step:
    """Processes outlived SIGKILL: no new round may start beside them."""
    ranks = ", ".join(str(rank) for rank in sorted(state.alive))
    message = f"rank {ranks} did not end within {KILL_WAIT_S:g} s of SIGKILL: it hangs in the kernel"
    hint = "look at the disks it uses: a dead network file system holds processes like this"
    failure = Failure(None, Cause.INFRASTRUCTURE, ExitCode.INFRASTRUCTURE, "", 0, message, hint=hint)
    ended = _round_ended(state, at_s, failure.cause, failure)
    return _and_then((ended,), _finish(state, at_s, "failed", failure.exit_code, message, failure))


def _finish(
    state: State, at_s: float, outcome: str, exit_code: int, reason: str, failure: Failure | None = None
) -> Step:
    data: dict[str, Any] = {
        "state": outcome,
        "exit_code": table_code(exit_code),
        "reason": reason,
        "seconds": round(at_s - state.began_s, 3),
    }
    if failure is not None:
        data |= {"cause": failure.cause.value, "hint": failure.hint}
    finished = replace(state, phase=Phase.FINISHED, deadline_s=None)
    return finished, (Record(Kind.RUN_FINISHED, data=data), Leave(table_code(exit_code)))


def _round_ended(
    state: State, at_s: float, cause: Cause, failure: Failure | None = None, message: str = ""
) -> Record:
    data: dict[str, Any] = {"cause": cause.value, "seconds": round(at_s - state.round_began_s, 3)}
    rank = None
    if failure is not None:
        rank = failure.rank
        data |= {
            "exit_code": failure.exit_code,
            "section": failure.section,
            "step": failure.step,
            "exception": failure.exception,
            "message": failure.message,
            "hint": failure.hint,
            "details": list(failure.details),
        }
    elif message:
        data["message"] = message
    return Record(Kind.ROUND_ENDED, state.round_number, rank, data)


def _exit_record(round_number: int, exit: Exit) -> Record:
    data: dict[str, Any] = {
        "exit_code": exit.exit_code,
        "section": exit.progress.section,
        "step": exit.progress.steps_done,
    }
    if exit.after_kill:
        data["after_kill"] = True
    if exit.report is not None:
        data |= {"exception": exit.report.exception, "message": exit.report.message}
    return Record(Kind.WORKER_EXITED, round_number, exit.rank, data)
