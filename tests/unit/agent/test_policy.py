"""The failure policy by tables: who is the root cause, and what follows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from phalanx.agent.policy import (
    MAX_DELAY_S,
    Cause,
    Exit,
    Failure,
    History,
    Progress,
    cause_of,
    judge,
    made_progress,
    remember,
    root_cause,
    table_code,
)
from phalanx.contract import ErrorReport, ExitCode
from phalanx.plan.model import FailurePlan

AT_120 = Progress("step", 120, 100, 500, True)


def reported(rank: int, code: int, time: float, message: str = "bad", after_kill: bool = False) -> Exit:
    report = ErrorReport(rank, 1, time, code, "step", 120, "builtins.ValueError", message, "", ("line",))
    return Exit(rank, 137 if after_kill else code, time, AT_120, report, after_kill)


def killed_by_agent(rank: int, time: float) -> Exit:
    return Exit(rank, 137, time, after_kill=True)


@pytest.mark.parametrize(
    ("exit", "cause"),
    [
        (Exit(0, 0, 1.0), None),
        (Exit(0, 0, 1.0, Progress("done", 500, 0, 500, True)), None),
        (Exit(0, 0, 1.0, AT_120), Cause.EARLY_EXIT),
        (Exit(0, 1, 1.0), Cause.USER_ERROR),
        (Exit(0, 3, 1.0), Cause.USER_ERROR),
        (Exit(0, 2, 1.0), Cause.USAGE),
        (Exit(0, 80, 1.0), Cause.PEER_LOST),
        (Exit(0, 82, 1.0), Cause.PREEMPTED),
        (Exit(0, 83, 1.0), Cause.CHECKPOINT),
        (Exit(0, 84, 1.0), Cause.INFRASTRUCTURE),
        (Exit(0, 93, 1.0), Cause.NO_RESTART),
        (Exit(0, 130, 1.0), Cause.TERMINATED),
        (Exit(0, 143, 1.0), Cause.TERMINATED),
        (Exit(0, 137, 1.0), Cause.KILLED),
        (Exit(0, 139, 1.0), Cause.CRASHED),
        (Exit(0, 135, 1.0), Cause.CRASHED),
        (Exit(0, 255, 1.0), Cause.USER_ERROR),
        (killed_by_agent(0, 1.0), None),
        (Exit(0, 139, 1.0, after_kill=True), Cause.CRASHED),
        (reported(0, 1, 1.0, after_kill=True), Cause.USER_ERROR),
        (reported(0, 80, 1.0), Cause.PEER_LOST),
    ],
)
def test_one_exit_by_itself(exit: Exit, cause: Cause | None) -> None:
    assert cause_of(exit) is cause


@pytest.mark.parametrize(
    ("exits", "rank", "cause"),
    [
        ([Exit(0, 0, 1.0), Exit(1, 0, 2.0)], None, None),
        # The first by the time of the report, not by the order in which the exits were seen.
        ([reported(0, 1, 2.0), reported(1, 1, 1.0)], 1, Cause.USER_ERROR),
        # Fallout comes first in time and is still no root cause.
        ([Exit(0, 80, 1.0), Exit(1, 137, 2.0)], 1, Cause.KILLED),
        ([reported(0, 80, 1.0), reported(1, 1, 1.5), killed_by_agent(2, 3.0)], 1, Cause.USER_ERROR),
        # It had written its report when the agent's SIGKILL came.
        ([Exit(0, 139, 2.0), reported(1, 1, 1.0, after_kill=True)], 1, Cause.USER_ERROR),
        # Only fallout: the rank that had left with 0 left its peers alone.
        ([Exit(2, 0, 1.0), Exit(0, 0, 2.0), Exit(1, 80, 3.0)], 2, Cause.EARLY_EXIT),
        ([Exit(0, 0, 1.0), Exit(1, 80, 3.0), reported(2, 1, 4.0)], 2, Cause.USER_ERROR),
        ([Exit(0, 80, 2.0), Exit(1, 80, 1.0)], 1, Cause.PEER_LOST),
    ],
)
def test_root_cause(exits: list[Exit], rank: int | None, cause: Cause | None) -> None:
    for order in itertools.permutations(exits):
        failure = root_cause(order)
        assert (failure and failure.rank, failure and failure.cause) == (rank, cause)


def test_what_a_person_is_told() -> None:
    told = root_cause([reported(1, 1, 1.0, "bad\nmore")])
    assert told is not None
    assert (told.summary, told.details, told.section, told.step) == (
        "rank 1: ValueError: bad",
        ("line",),
        "step",
        120,
    )
    assert replace(told, message="").summary == "rank 1: ValueError"
    silent = root_cause([Exit(0, 137, 1.0, AT_120, log_tail=("last line",))])
    assert silent is not None
    assert silent.message == "died of SIGKILL: by hand, by the kernel for memory, or by a scheduler"
    assert (silent.details, silent.section, silent.step) == (("last line",), "step", 120)
    early = root_cause([Exit(0, 0, 1.0, AT_120)])
    assert early is not None
    assert early.message == "exited with 0 after step 120 of 500 while work remained"
    assert table_code(early.exit_code) == ExitCode.USER_ERROR


@pytest.mark.parametrize(
    ("progress", "lasted_s", "best_step", "progressed"),
    [
        ([], 59.0, 0, False),
        ([Progress()], 61.0, 0, True),
        # Once a job has reported steps, time alone is no progress.
        ([Progress()], 3600.0, 100, False),
        ([Progress(reports=True)], 3600.0, 0, False),
        ([AT_120], 1.0, 0, True),
        ([AT_120], 1.0, 119, True),
        ([AT_120], 1.0, 120, False),
        # Restored at 100 and no step done: where it starts is not its own work.
        ([Progress("setup", 100, 100, 500, True)], 1.0, 0, False),
    ],
)
def test_progress_of_a_round(
    progress: list[Progress], lasted_s: float, best_step: int, progressed: bool
) -> None:
    assert made_progress(progress, lasted_s, best_step) is progressed


def failure_at(step: int, cause: Cause = Cause.USER_ERROR, code: int = 1, message: str = "bad") -> Failure:
    return Failure(1, cause, code, "step", step, message, "builtins.ValueError")


@pytest.mark.parametrize(
    ("first", "second", "progress", "repeated"),
    [
        (failure_at(120), failure_at(120), [AT_120], True),
        (failure_at(120), replace(failure_at(120), rank=0), [AT_120], True),
        (failure_at(120), failure_at(120, message="other"), [AT_120], False),
        (failure_at(119), failure_at(120), [AT_120], False),
        (failure_at(120, Cause.KILLED, 137), failure_at(120, Cause.KILLED, 137), [AT_120], False),
        (failure_at(0), failure_at(0), [], True),
        (failure_at(0, Cause.EARLY_EXIT), failure_at(0, Cause.EARLY_EXIT), [], True),
    ],
)
def test_the_same_failure_twice(
    first: Failure, second: Failure, progress: list[Progress], repeated: bool
) -> None:
    history, once = remember(History(), first, progress, 1.0)
    assert not once
    assert remember(history, second, progress, 1.0)[1] is repeated


def test_a_failure_that_comes_again_after_progress_is_no_repetition() -> None:
    history, _ = remember(History(), failure_at(120), [AT_120], 1.0)
    further = Progress("step", 300, 100, 500, True)
    assert not remember(history, failure_at(120), [further], 1.0)[1]


LIMITS = FailurePlan(max_restarts=4, no_progress_rounds=3)


@pytest.mark.parametrize(
    ("failure", "history", "repeated", "restart", "words"),
    [
        (failure_at(5), History(), False, True, "ValueError: bad"),
        (failure_at(5), History(), True, False, "the same failure twice at step 5"),
        (failure_at(5, Cause.NO_RESTART, 93), History(), False, False, "a restart cannot help"),
        (failure_at(5, Cause.USAGE, 2), History(), False, False, "a restart cannot help"),
        (failure_at(5), History(restarts_used=3), False, True, "bad"),
        (failure_at(5), History(restarts_used=4), False, False, "failure.max_restarts = 4"),
        (failure_at(5), History(barren_rounds=2), False, True, "bad"),
        (failure_at(5), History(barren_rounds=3), False, False, "no new step in 3 failed rounds in a row"),
    ],
)
def test_verdict(failure: Failure, history: History, repeated: bool, restart: bool, words: str) -> None:
    verdict = judge(failure, history, repeated, LIMITS)
    assert verdict.restart is restart
    assert words in verdict.reason


def test_rounds_with_progress_restart_at_once_and_others_wait_longer_each_time() -> None:
    limits = FailurePlan(max_restarts=99, no_progress_rounds=99)
    delays = [judge(failure_at(5), History(barren_rounds=n), False, limits).delay_s for n in range(8)]
    assert delays == [0, 1, 2, 4, 8, 16, MAX_DELAY_S, MAX_DELAY_S]


@pytest.mark.parametrize(
    ("code", "table"), [(0, 0), (1, 1), (3, 1), (93, 93), (137, 137), (139, 139), (135, 134), (255, 1)]
)
def test_every_code_has_a_place_in_the_table(code: int, table: int) -> None:
    assert table_code(code) == table
