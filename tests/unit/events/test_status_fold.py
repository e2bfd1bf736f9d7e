"""The status fold, by tables: events in, status out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.contract import ExitCode
from phalanx.events.board import BoardReading
from phalanx.events.fold import fold
from phalanx.events.kinds import Event, Kind
from phalanx.events.status import RunState, RunStatus

START = 1000.0


def event(
    kind: Kind, at: float = 0.0, *, round_number: int | None = None, rank: int | None = None, **data: Any
) -> Event:
    return Event(START + at, kind, round_number, rank, data)


def board(**changes: Any) -> BoardReading:
    values: dict[str, Any] = {
        "pid": 7,
        "section": "step",
        "section_since_s": 40.0,
        "steps_begun": 31,
        "steps_done": 30,
        "target_steps": 100,
        "start_step": 0,
        "last_step_s": 49.0,
        "examples_done": 960,
        "loss": 0.5,
        "examples_per_s": 320.0,
    }
    return BoardReading(**{**values, **changes})


def status_of(
    *events: Event, alive: bool = True, now: float = 10.0, boards: dict[int, BoardReading] | None = None
) -> RunStatus:
    return fold(events, boards=boards, agent_alive=alive, now=START + now, monotonic_s=50.0)


RUN = event(Kind.RUN_STARTED, job="demo", workers=2, pid=5, resumed=False)
ROUND_1 = event(Kind.ROUND_STARTED, 1, round_number=1, world_size=2)
WORKER_1 = event(Kind.WORKER_STARTED, 1, round_number=1, rank=1, pid=12, log="/logs/1")
TRAINING = event(Kind.TRAINING_STARTED, 2, round_number=1, rank=0, start_step=0, steps=100, global_batch=32)
KILLED = event(Kind.WORKER_EXITED, 5, round_number=1, rank=1, exit_code=137, section="step", step=30)
FALLOUT = event(Kind.WORKER_EXITED, 5.5, round_number=1, rank=0, exit_code=80, section="step", step=30)
ENDED = event(
    Kind.ROUND_ENDED,
    6,
    round_number=1,
    rank=1,
    cause="killed",
    section="step",
    step=30,
    message="died of SIGKILL",
)
RESTARTING = event(Kind.RESTARTING, 6, round_number=1, restarts_used=1, restarts_left=9, delay_s=0)
ROUND_2 = event(Kind.ROUND_STARTED, 7, round_number=2, world_size=2)
RESUMED = event(Kind.STEP_RESUMED, 9, round_number=2, rank=0, step=26)
COMMITTED = event(Kind.CHECKPOINT_COMMITTED, 4, round_number=1, rank=0, step=25, path="/c/step-000000025")
STOP = event(Kind.STOP_REQUESTED, 8, by="SIGINT", grace_s=30)
LOST = event(Kind.AGENT_LOST, 8, message="the agent died")


def finished(state: str, code: int, at: float = 9.0) -> Event:
    return event(
        Kind.RUN_FINISHED, at, state=state, exit_code=code, reason="why", seconds=9.0, hint="do this"
    )


@pytest.mark.parametrize(
    ("events", "alive", "state"),
    [
        ((), True, RunState.STARTING),
        ((RUN,), True, RunState.STARTING),
        ((RUN, ROUND_1), True, RunState.RUNNING),
        ((RUN, ROUND_1, ENDED, RESTARTING), True, RunState.RESTARTING),
        ((RUN, ROUND_1, ENDED, RESTARTING, ROUND_2), True, RunState.RUNNING),
        ((RUN, ROUND_1, STOP), True, RunState.STOPPING),
        ((RUN, STOP, ROUND_1), True, RunState.STOPPING),
        ((RUN, ROUND_1, STOP, finished("stopped", 130)), False, RunState.STOPPED),
        ((RUN, ROUND_1, finished("succeeded", 0)), False, RunState.SUCCEEDED),
        ((RUN, ROUND_1, finished("failed", 1)), False, RunState.FAILED),
        ((RUN, ROUND_1, finished("failed", 1)), True, RunState.FAILED),  # it is about to leave
        ((RUN, ROUND_1, finished("a state of the future", 1)), False, RunState.FAILED),
        ((), False, RunState.LOST),
        ((RUN, ROUND_1), False, RunState.LOST),
        ((RUN, ROUND_1, LOST), False, RunState.LOST),
        ((RUN, finished("stopped", 130), LOST), False, RunState.STOPPED),
        ((RUN, finished("stopped", 130), RUN, ROUND_2), True, RunState.RUNNING),
        ((RUN, ROUND_1, LOST, RUN), True, RunState.STARTING),
    ],
)
def test_state(events: tuple[Event, ...], alive: bool, state: RunState) -> None:
    assert status_of(*events, alive=alive).state is state


def test_a_lost_run_has_the_code_of_the_table_and_a_reason() -> None:
    silent = status_of(RUN, ROUND_1, alive=False)
    told = status_of(RUN, ROUND_1, LOST, alive=False)
    assert silent.exit_code == told.exit_code == ExitCode.INFRASTRUCTURE
    assert silent.reason
    assert told.reason == "the agent died"


def test_ranks_of_the_present_round() -> None:
    status = status_of(RUN, ROUND_1, WORKER_1, KILLED)
    assert [rank.rank for rank in status.ranks] == [0, 1]
    one = status.ranks[1]
    assert (one.pid, one.exit_code, one.section, one.step, one.log) == (12, 137, "step", 30, "/logs/1")
    assert status.ranks[0].exit_code is None
    fresh = status_of(RUN, ROUND_1, WORKER_1, KILLED, ENDED, RESTARTING, ROUND_2)
    assert [(rank.pid, rank.exit_code) for rank in fresh.ranks] == [(None, None)] * 2
    assert fresh.logs == {(1, 1): "/logs/1"}


def test_restart_budget() -> None:
    plan_knows = RunStatus(max_restarts=10)
    before = fold([RUN, ROUND_1], plan_knows, agent_alive=True, now=START, monotonic_s=0)
    after = status_of(RUN, ROUND_1, ENDED, RESTARTING)
    assert (before.restarts_used, before.restarts_left) == (0, 10)
    assert (after.restarts_used, after.restarts_left) == (1, 9)
    resumed = status_of(RUN, ROUND_1, ENDED, RESTARTING, finished("stopped", 130), RUN)
    assert (resumed.restarts_used, resumed.restarts_left) == (0, 10)


def test_recovery_counts_from_the_first_exit_to_the_first_step_after_it() -> None:
    status = status_of(RUN, ROUND_1, TRAINING, KILLED, FALLOUT, ENDED, RESTARTING, ROUND_2, RESUMED)
    assert status.recovery_s == pytest.approx(4.0)
    assert status.failure is not None
    assert (status.failure.rank, status.failure.cause) == (1, "killed")
    assert status.failure.summary == "rank 1: died of SIGKILL"


def test_recovery_without_a_seen_exit_counts_from_the_end_of_the_round() -> None:
    assert status_of(RUN, ROUND_1, ENDED, RESTARTING, ROUND_2, RESUMED).recovery_s == pytest.approx(3.0)


def test_a_resume_by_hand_is_no_recovery() -> None:
    status = status_of(RUN, ROUND_1, KILLED, ENDED, finished("failed", 137), RUN, ROUND_2, RESUMED)
    assert status.recovery_s is None


@pytest.mark.parametrize("cause", ["finished", "stopped"])
def test_a_round_that_ended_as_wished_is_no_failure(cause: str) -> None:
    assert status_of(RUN, ROUND_1, event(Kind.ROUND_ENDED, 6, round_number=1, cause=cause)).failure is None


def test_progress_from_events_alone() -> None:
    progress = event(
        Kind.PROGRESS,
        6,
        round_number=1,
        rank=0,
        step=40,
        loss=0.7,
        metrics={"loss": 0.7},
        examples_per_s=64.0,
    )
    status = status_of(RUN, ROUND_1, TRAINING, progress, COMMITTED)
    assert (status.step, status.target_steps, status.loss, status.examples_per_s) == (40, 100, 0.7, 64.0)
    assert status.eta_s == pytest.approx(60 * 32 / 64)
    assert status.checkpoint is not None
    assert (status.checkpoint.step, status.checkpoint.path) == (25, "/c/step-000000025")


def test_eta_without_a_rate_is_by_the_steps_done_so_far() -> None:
    progress = event(Kind.PROGRESS, 6, round_number=1, rank=0, step=40, loss=0.7)
    status = status_of(RUN, ROUND_1, TRAINING, progress, now=22.0)
    assert status.eta_s == pytest.approx(60 * 20 / 40)


def test_no_eta_from_the_first_step_which_compiles() -> None:
    progress = event(Kind.PROGRESS, 6, round_number=1, rank=0, step=1, loss=0.7)
    assert status_of(RUN, ROUND_1, TRAINING, progress, now=22.0).eta_s is None


def test_boards_say_more_than_events() -> None:
    boards = {0: board(), 1: board(steps_done=29, section="input", loss=math.nan, examples_per_s=math.nan)}
    status = status_of(RUN, ROUND_1, TRAINING, boards=boards)
    assert (status.step, status.loss, status.examples_per_s) == (30, 0.5, 320.0)
    assert [(rank.section, rank.step, rank.loss) for rank in status.ranks] == [
        ("step", 30, 0.5),
        ("input", 29, None),
    ]
    assert status.ranks[0].section_s == pytest.approx(10.0)
    assert status.eta_s == pytest.approx(70 * 32 / 320)


def test_boards_of_a_round_that_is_over_are_not_believed() -> None:
    boards = {0: board(steps_done=77)}
    restarting = status_of(RUN, ROUND_1, TRAINING, COMMITTED, ENDED, RESTARTING, boards=boards)
    ended = status_of(RUN, ROUND_1, TRAINING, finished("stopped", 130), boards=boards)
    assert restarting.step == 25
    assert ended.step == 0


def test_boards_of_a_lost_run_tell_how_far_it_came() -> None:
    status = status_of(RUN, ROUND_1, TRAINING, boards={0: board()}, alive=False)
    assert (status.state, status.step, status.ranks[0].section_s) == (RunState.LOST, 30, None)


def test_a_worker_that_has_left_keeps_what_its_exit_said() -> None:
    status = status_of(RUN, ROUND_1, KILLED, boards={1: board(section="checkpoint")})
    assert (status.ranks[1].section, status.ranks[1].exit_code) == ("step", 137)


def test_a_new_round_stands_where_it_will_go_on() -> None:
    lost_steps = event(Kind.PROGRESS, 5, round_number=1, rank=0, step=40, loss=0.7)
    status = status_of(RUN, ROUND_1, TRAINING, COMMITTED, lost_steps, ENDED, RESTARTING, ROUND_2)
    assert (status.step, status.loss, status.examples_per_s) == (25, None, None)


def test_a_late_word_of_an_earlier_round_changes_nothing() -> None:
    late = event(Kind.PROGRESS, 8, round_number=1, rank=0, step=99, loss=9.0)
    status = status_of(RUN, ROUND_1, TRAINING, COMMITTED, ENDED, RESTARTING, ROUND_2, late, KILLED)
    assert (status.step, status.loss) == (25, None)
    assert status.ranks[1].exit_code is None


def test_a_script_that_tells_no_step_has_none() -> None:
    left = event(Kind.WORKER_EXITED, 5, round_number=1, rank=1, exit_code=0, section="setup", step=0)
    status = status_of(RUN, ROUND_1, left, finished("succeeded", 0), alive=False)
    assert (status.step, status.eta_s, status.exit_code) == (None, None, 0)


def test_metrics_keep_numbers_only() -> None:
    evaluated = event(Kind.EVALUATED, 6, step=40, metrics={"auc": 0.7, "note": "x", "flag": True})
    last = event(Kind.TRAINING_FINISHED, 7, step=100, metrics={"loss": 0.1})
    status = status_of(RUN, ROUND_1, TRAINING, evaluated, last)
    assert (status.evaluated, status.evaluated_step) == ({"auc": 0.7}, 40)
    assert (status.metrics, status.step) == ({"loss": 0.1}, 100)


def test_times() -> None:
    running = status_of(RUN, ROUND_1, now=12.0)
    ended = status_of(RUN, ROUND_1, finished("succeeded", 0), now=99.0, alive=False)
    assert (running.created, running.started, running.elapsed_s) == (START, START, 12.0)
    assert (ended.finished, ended.elapsed_s) == (START + 9.0, 9.0)
    again = status_of(
        RUN, finished("stopped", 130), event(Kind.RUN_STARTED, 50, resumed=True, workers=2), now=55.0
    )
    assert (again.created, again.started, again.elapsed_s) == (START, START + 50, 5.0)
    assert (again.exit_code, again.reason, again.finished) == (None, "", None)


_JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=3), st.lists(st.none())
)
_KEYS = st.sampled_from(
    [
        "step", "steps", "start_step", "loss", "metrics", "exit_code", "section", "cause", "state", "message",
        "details", "exception", "path", "restarts_used", "restarts_left", "delay_s", "world_size", "pid",
        "log", "examples_per_s", "global_batch", "seconds", "workers", "job",
    ]
)  # fmt: skip
_EVENTS = st.builds(
    Event,
    time=st.floats(0, 2e9),
    kind=st.sampled_from(list(Kind)),
    round=st.one_of(st.none(), st.integers(0, 3)),
    rank=st.one_of(st.none(), st.integers(0, 3)),
    data=st.dictionaries(_KEYS, _JUNK, max_size=8).map(
        lambda data: {**data, "world_size": 3} if "world_size" in data else data
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_EVENTS, max_size=12), st.booleans())
def test_no_sequence_of_events_breaks_the_fold(events: list[Event], alive: bool) -> None:
    status = fold(events, boards={0: board()}, agent_alive=alive, now=2e9, monotonic_s=50.0)
    assert status.state is not RunState.RUNNING or alive
