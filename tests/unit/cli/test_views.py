"""What is shown of a run: the live picture, plain lines, the summary, the document."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.cli.live import render
from phalanx.cli.summary import document, summary, to_json
from phalanx.cli.view import PROGRESS_PERIOD_S, PlainView, progress_line
from phalanx.events.kinds import Event, Kind
from phalanx.events.status import CheckpointStatus, FailureStatus, RankStatus, RunState, RunStatus

RUN_ID = "credit-risk-20260504-030201-ab12"
FAILURE = FailureStatus(
    time=1005.0,
    round=1,
    rank=1,
    cause="user_error",
    section="step",
    step=30,
    exception="builtins.ValueError",
    message="boom [bold]not markup[/bold]\nsecond line",
    hint="mend it",
    details=tuple(f"traceback line {number}" for number in range(20)),
)
RUNNING = RunStatus(
    job="credit-risk",
    state=RunState.RUNNING,
    world_size=2,
    round=2,
    max_restarts=10,
    restarts_used=1,
    ranks=(
        RankStatus(0, "step", 1.0, 120, 0.31, 4711),
        RankStatus(1, "checkpoint", 2.0, 119, None, 4712),
    ),
    step=120,
    target_steps=600,
    global_batch=32,
    loss=0.3127,
    examples_per_s=812.0,
    eta_s=80.0,
    created=1000.0,
    started=1000.0,
    elapsed_s=61.0,
    checkpoint=CheckpointStatus(100, "/runs/x/checkpoints/step-000000100", 1004.0),
    failure=FAILURE,
    recovery_s=3.2,
    metrics={"loss": 0.3127},
    evaluated={"auc": 0.7021},
    evaluated_step=100,
    logs={(1, 1): "/runs/x/logs/round-0001/rank-1.log"},
)
FAILED = replace(
    RUNNING,
    state=RunState.FAILED,
    exit_code=1,
    reason="rank 1: ValueError: boom [bold]not markup[/bold]; all restarts are used",
    hint="mend it",
)
EVENTS = (
    Event(1000.0, Kind.ROUND_STARTED, 2),
    Event(1001.0, Kind.WARNING, 2, 1, {"message": "careful \x1b[31m[red]" + "x" * 300}),
)


def drawn(status: RunStatus, width: int, height: int = 40, events: tuple[Event, ...] = EVENTS) -> str:
    console = Console(width=width, height=height, record=True, file=io.StringIO(), force_terminal=True)
    console.print(render(RUN_ID, status, events, width=width, height=height))
    return console.export_text()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 160])
@pytest.mark.parametrize("state", list(RunState))
def test_the_picture_fits_its_terminal(width: int, state: RunState) -> None:
    text = drawn(replace(RUNNING, state=state), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert text.startswith(state.value)


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_picture_tells_what_matters(width: int) -> None:
    text = drawn(RUNNING, width)
    wanted = ["120 of 600", "1m20s to go", "loss 0.3127", "812 examples/s", "round 2  1 restart, 9 left"]
    wanted += [
        "checkpoint",
        "119",
        "4711",
        "last failure",
        "training went on 3.2 s",
        "step 100",
        "auc 0.7021",
    ]
    wanted += ["round 2 started", RUN_ID]
    assert [words for words in wanted if words not in text] == []


def test_messages_are_neither_markup_nor_control_characters() -> None:
    text = drawn(RUNNING, 160)
    assert "[bold]not markup[/bold]" in text
    assert "\\x1b[31m[red]" in text


@pytest.mark.parametrize("height", [18, 24, 40])
def test_many_ranks_leave_room_for_the_rest(height: int) -> None:
    ranks = tuple(RankStatus(rank, "step" if rank else "input", 1.0, 5) for rank in range(64))
    text = drawn(replace(RUNNING, ranks=ranks, world_size=64), 80, height)
    assert len(text.splitlines()) < height
    assert "more: " in text
    assert "round 2 started" in text


def test_a_run_without_steps_has_no_bar() -> None:
    status = RunStatus(state=RunState.RUNNING, round=1, world_size=1, ranks=(RankStatus(0),))
    text = drawn(status, 80, events=())
    assert "examples/s" not in text
    assert "━" not in text


def test_plain_lines() -> None:
    lines: list[str] = []
    now = [0.0]
    view = PlainView(RUN_ID, lines.append, clock=lambda: now[0])
    view.update(replace(RUNNING, step=None), ())
    view.update(RUNNING, (*EVENTS, Event(1002.0, Kind.PROGRESS, 2, 0, {"step": 120})))
    view.update(replace(RUNNING, step=121), ())
    now[0] = PROGRESS_PERIOD_S
    view.update(replace(RUNNING, step=130), ())
    now[0] = 2 * PROGRESS_PERIOD_S
    view.update(replace(RUNNING, step=130), ())
    view.close()
    assert lines[0] == f"run {RUN_ID}"
    assert [line.split("  ", 1)[1][:15] for line in lines[1:]] == [
        "round 2 started",
        "warning of rank",
        "step 120 of 600",
        "step 130 of 600",
    ]
    assert all(line.isprintable() for line in lines)


def test_progress_line() -> None:
    assert progress_line(RUNNING) == "step 120 of 600  loss 0.3127  812 examples/s  1m20s to go"
    assert progress_line(replace(RUNNING, step=None)) == ""
    assert progress_line(FAILED) == ""
    assert progress_line(RunStatus(state=RunState.RUNNING, step=3)) == "step 3"


def test_summary_of_success() -> None:
    text = summary(RUN_ID, replace(RUNNING, state=RunState.SUCCEEDED, exit_code=0, step=600), Path("/c"))
    for words in (
        f"{RUN_ID}: succeeded",
        "600 of 600",
        "2 (1 restart, 9 left)",
        "3.2 s from the failure",
        "auc 0.7021 (step 100)",
        "/runs/x/checkpoints/step-000000100",
    ):
        assert words in text
    assert "boom" not in text
    assert "resume" not in text


def test_summary_of_failure() -> None:
    text = summary(RUN_ID, FAILED, Path("/c"), detail_lines=3)
    for words in (
        "1 (user error)",
        "all restarts are used",
        "rank 1: ValueError: boom",
        "round 1, section step, step 30",
        "| traceback line 19",
        "/runs/x/logs/round-0001/rank-1.log",
        f"phalanx resume {RUN_ID}",
    ):
        assert words in text
    assert "traceback line 16" not in text
    assert text.count("mend it") == 1
    assert text.count("ValueError: boom") == 1


def test_summary_shows_all_of_a_message_that_has_no_traceback() -> None:
    mismatch = replace(FAILURE, details=(), message="two do not fit\n    a: \x1b[1mshape\n    b: dtype")
    text = summary(RUN_ID, replace(FAILED, failure=mismatch), None)
    assert "    |     a: \\x1b[1mshape\n    |     b: dtype" in text


def test_summary_shows_control_characters_of_a_log() -> None:
    failure = replace(FAILURE, details=("\tcol\x1b[2Jcleared",))
    assert "|         col\\x1b[2Jcleared" in summary(RUN_ID, replace(FAILED, failure=failure), None)


def test_summary_of_an_ended_run_promises_no_checkpoint() -> None:
    without = replace(RUNNING, checkpoint=None)
    assert "none by this run yet in /c" in summary(RUN_ID, without, Path("/c"))
    assert "none by this run in /c" in summary(RUN_ID, replace(without, state=RunState.SUCCEEDED), Path("/c"))


def test_summary_without_traceback_lines_when_none_are_wanted() -> None:
    assert "|" not in summary(RUN_ID, FAILED, None, detail_lines=0)


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.LOST])
def test_summary_says_how_to_go_on(state: RunState) -> None:
    assert f"phalanx resume {RUN_ID}" in summary(RUN_ID, replace(RUNNING, state=state), None)


def test_the_table_of_ranks_is_aligned() -> None:
    lines = summary(RUN_ID, RUNNING, None, ranks=True).splitlines()
    heading = next(line for line in lines if line.split()[:2] == ["rank", "section"])
    row = lines[lines.index(heading) + 2]
    assert row.index("checkpoint") == heading.index("section")
    assert row.index("4712") == heading.index("pid")


DOCUMENT_KEYS = [
    "run",
    "job",
    "state",
    "dir",
    "agent_alive",
    "exit_code",
    "reason",
    "hint",
    "created",
    "started",
    "finished",
    "elapsed_s",
    "world_size",
    "round",
    "restarts_used",
    "restarts_left",
    "step",
    "target_steps",
    "loss",
    "examples_per_s",
    "eta_s",
    "metrics",
    "evaluated_step",
    "evaluated",
    "checkpoint",
    "checkpoint_dir",
    "failure",
    "recovery_s",
    "ranks",
    "warnings",
    "problems",
]


def test_document_has_the_documented_keys_and_is_standard_json() -> None:
    status = replace(FAILED, loss=math.nan, metrics={"loss": math.inf})
    data = document(Path("/runs/x"), status, agent_alive=False, checkpoint_dir=Path("/c"), problems=("p",))
    assert list(data) == DOCUMENT_KEYS
    read = json.loads(to_json(data), parse_constant=pytest.fail)
    assert (read["loss"], read["metrics"]) == (None, {"loss": None})
    assert read["failure"]["details"][0] == "traceback line 0"
    assert read["ranks"][1]["pid"] == 4712
    assert json.loads(
        to_json(document(Path("/r"), RunStatus(), agent_alive=True, checkpoint_dir=None, problems=()))
    )
