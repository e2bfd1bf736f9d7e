"""The failure policy: from the exits of a round to the root cause, and from that to a verdict. Pure.

It knows neither processes nor clocks: what happened comes in, what to do goes out. docs/failures.md says
the same in words.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from phalanx.contract import ErrorReport, ExitCode
from phalanx.plan.model import FailurePlan

# A round of a script that reports no steps counts as progress when it lasted this long.
UNMEASURED_PROGRESS_S = 60.0
_LAST_SIGNAL = 64  # SIGRTMAX of Linux
# Longest pause before a new round; reached by doubling from 1 s while rounds make no progress.
MAX_DELAY_S = 30.0


class Cause(str, Enum):
    """Why a round ended, as `round_ended` events say it."""

    FINISHED = "finished"  # every rank left with 0
    STOPPED = "stopped"  # a person, a scheduler or the death of the launcher asked for it
    USER_ERROR = "user_error"  # an exception in the user's code, or an exit code that is not in the table
    EARLY_EXIT = "early_exit"  # a rank left with 0 while work remained
    USAGE = "usage"  # the script refused its arguments (exit code 2)
    NO_RESTART = "no_restart"  # a restart cannot help, or the program asked for none
    CHECKPOINT = "checkpoint"  # a checkpoint could not be written or read
    INFRASTRUCTURE = "infrastructure"  # no port, no process, no memory, no disk
    STUCK = "stuck"  # alive without progress
    PREEMPTED = "preempted"  # a worker was asked by somebody else to stop
    TERMINATED = "terminated"  # a worker died of SIGTERM or SIGINT that the agent did not send
    KILLED = "killed"  # SIGKILL from outside
    CRASHED = "crashed"  # any other signal: a native library crashed or gave up
    PEER_LOST = "peer_lost"  # ranks lost a peer and nobody showed why


_CAUSE_OF_CODE: Mapping[int, Cause] = {
    ExitCode.USER_ERROR: Cause.USER_ERROR,
    ExitCode.USAGE: Cause.USAGE,
    ExitCode.PEER_LOST: Cause.PEER_LOST,
    ExitCode.STUCK: Cause.STUCK,
    ExitCode.PREEMPTED: Cause.PREEMPTED,
    ExitCode.CHECKPOINT: Cause.CHECKPOINT,
    ExitCode.INFRASTRUCTURE: Cause.INFRASTRUCTURE,
    ExitCode.NO_RESTART: Cause.NO_RESTART,
    ExitCode.INTERRUPTED: Cause.TERMINATED,
    ExitCode.TERMINATED: Cause.TERMINATED,
    ExitCode.KILLED: Cause.KILLED,
}
_FINAL_CAUSES = (Cause.NO_RESTART, Cause.USAGE)
_REPEATABLE_CAUSES = (Cause.USER_ERROR, Cause.EARLY_EXIT)


@dataclass(frozen=True)
class Progress:
    """What a worker's board said last. `reports` is False for a script that never opened its board."""

    section: str = "setup"
    steps_done: int = 0
    start_step: int = 0
    target_steps: int = 0
    reports: bool = False


@dataclass(frozen=True)
class Exit:
    """One worker's end. `time` (Unix seconds) is that of its error report, else when the agent saw the exit.

    `after_kill` is True when the agent had already sent SIGKILL, `left_alone` when others still waited for
    this rank to join them; `log_tail` is the end of the worker's log.
    """

    rank: int
    exit_code: int
    time: float
    progress: Progress = Progress()
    report: ErrorReport | None = None
    after_kill: bool = False
    log_tail: tuple[str, ...] = ()
    left_alone: bool = False


@dataclass(frozen=True)
class Failure:
    """The root cause of a failed round. `details` are the last lines of the traceback, else of the log."""

    rank: int | None
    cause: Cause
    exit_code: int
    section: str
    step: int
    message: str
    exception: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()

    @property
    def signature(self) -> tuple[str, str, str, int]:
        """Equal for failures that are the same, on whichever rank they happened."""
        return (self.cause.value, self.exception, self.message, self.step)

    @property
    def summary(self) -> str:
        """One line for a person."""
        who = "" if self.rank is None else f"rank {self.rank}: "
        what = ": ".join(filter(None, (self.exception.rpartition(".")[2], self.message)))
        return who + (what.splitlines() or [""])[0]


@dataclass(frozen=True)
class History:
    """What the agent remembers of earlier rounds: `best_step` is the highest step ever done."""

    restarts_used: int = 0
    best_step: int = 0
    barren_rounds: int = 0
    last_signature: tuple[str, str, str, int] | None = None


@dataclass(frozen=True)
class Verdict:
    """What to do after a failed round: restart after `delay_s`, or end with `exit_code` and say why."""

    restart: bool
    delay_s: float
    exit_code: int
    reason: str


def table_code(code: int) -> int:
    """The exit code of the table that stands for `code`: unknown numbers are the program's own failures."""
    if code in ExitCode.__members__.values():
        return int(code)
    return int(ExitCode.ABORTED if _is_signal(code) else ExitCode.USER_ERROR)


def cause_of(exit: Exit) -> Cause | None:
    """Judge one exit by itself; None when it is no failure of its own."""
    if exit.report is not None:
        return _CAUSE_OF_CODE.get(exit.report.exit_code, Cause.USER_ERROR)
    if exit.after_kill and exit.exit_code == ExitCode.KILLED:
        return None
    if exit.exit_code == ExitCode.SUCCESS:
        unfinished = exit.progress.steps_done < exit.progress.target_steps
        return Cause.EARLY_EXIT if unfinished or exit.left_alone else None
    if exit.exit_code in _CAUSE_OF_CODE:
        return _CAUSE_OF_CODE[exit.exit_code]
    return Cause.CRASHED if _is_signal(exit.exit_code) else Cause.USER_ERROR


def root_cause(exits: Sequence[Exit]) -> Failure | None:
    """The first failure by time that is not fallout of another; None when no rank failed.

    When all that is left is fallout, a rank that left with 0 before is the cause: it left its peers alone.
    """
    judged = sorted(((exit, cause_of(exit)) for exit in exits), key=lambda pair: pair[0].time)
    own = [(exit, cause) for exit, cause in judged if cause not in (None, Cause.PEER_LOST)]
    if own and own[0][1] is not None:
        return _failure(own[0][0], own[0][1])
    fallout = [exit for exit, cause in judged if cause is Cause.PEER_LOST]
    if not fallout:
        return None
    left = [exit for exit, cause in judged if cause is None and exit.exit_code == ExitCode.SUCCESS]
    return _failure(left[0], Cause.EARLY_EXIT) if left else _failure(fallout[0], Cause.PEER_LOST)


def made_progress(progress: Sequence[Progress], lasted_s: float, best_step: int) -> bool:
    """Whether a round did a step that is new for the job; without reports, whether it lasted long enough."""
    if not any(one.reports for one in progress) and best_step == 0:
        return lasted_s >= UNMEASURED_PROGRESS_S
    return reached(progress, best_step) > best_step


def reached(progress: Sequence[Progress], best_step: int) -> int:
    """The highest step done in this round or before it."""
    return max([best_step, *(one.steps_done for one in progress if one.steps_done > one.start_step)])


def remember(
    history: History, failure: Failure, progress: Sequence[Progress], lasted_s: float
) -> tuple[History, bool]:
    """Add a failed round to the history; also say whether the same failure came twice without progress."""
    progressed = made_progress(progress, lasted_s, history.best_step)
    measured = any(one.reports for one in progress) or history.best_step > 0
    repeated = (
        failure.cause in _REPEATABLE_CAUSES
        and failure.signature == history.last_signature
        and not (measured and progressed)
    )
    return History(
        restarts_used=history.restarts_used,
        best_step=reached(progress, history.best_step),
        barren_rounds=0 if progressed else history.barren_rounds + 1,
        last_signature=failure.signature,
    ), repeated


def judge(failure: Failure, history: History, repeated: bool, limits: FailurePlan) -> Verdict:
    """Restart or give up. `history` already holds this failure, `restarts_used` does not."""
    reason = ""
    if failure.cause in _FINAL_CAUSES:
        reason = "a restart cannot help"
    elif repeated:
        reason = f"the same failure twice at step {failure.step} without progress: a restart does not help"
    elif history.barren_rounds >= limits.no_progress_rounds:
        reason = (
            f"no new step in {history.barren_rounds} failed rounds in a row "
            f"(failure.no_progress_rounds = {limits.no_progress_rounds})"
        )
    elif history.restarts_used >= limits.max_restarts:
        reason = f"all restarts are used (failure.max_restarts = {limits.max_restarts})"
    if reason:
        return Verdict(False, 0.0, table_code(failure.exit_code), f"{failure.summary}; {reason}")
    delay_s = min(MAX_DELAY_S, 2.0 ** (history.barren_rounds - 1)) if history.barren_rounds else 0.0
    return Verdict(True, delay_s, table_code(failure.exit_code), failure.summary)


def _failure(exit: Exit, cause: Cause) -> Failure:
    report = exit.report
    if report is not None:
        return Failure(
            rank=exit.rank,
            cause=cause,
            exit_code=report.exit_code,
            section=report.section,
            step=report.step,
            message=report.message,
            exception=report.exception,
            hint=report.hint,
            details=report.traceback,
        )
    return Failure(
        rank=exit.rank,
        cause=cause,
        exit_code=int(ExitCode.USER_ERROR) if cause is Cause.EARLY_EXIT else exit.exit_code,
        section=exit.progress.section,
        step=exit.progress.steps_done,
        message=_describe(exit, cause),
        details=exit.log_tail,
    )


def _describe(exit: Exit, cause: Cause) -> str:
    """What to say of a worker that left no report."""
    if cause is Cause.EARLY_EXIT:
        done, target = exit.progress.steps_done, exit.progress.target_steps
        after = f" after step {done} of {target}" if target else ""
        return f"exited with 0{after} while work remained"
    if _is_signal(exit.exit_code):
        name = _signal_name(exit.exit_code - 128)
        why = {"SIGKILL": ": by hand, by the kernel for memory, or by a scheduler"}.get(name, "")
        return f"died of {name}{why}"
    return f"exited with code {exit.exit_code}"


def _is_signal(code: int) -> bool:
    """Whether an exit code says that a signal killed; 255 is what sys.exit(-1) gives."""
    return 128 < code <= 128 + _LAST_SIGNAL


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
