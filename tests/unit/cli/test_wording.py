"""Numbers, times and events as a person reads them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cli import wording
from phalanx.events.kinds import Event, Kind


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (-0.5, "0.0 s"),
        (3.21, "3.2 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1m00s"),
        (102, "1m42s"),
        (3600, "1h00m"),
        (7500, "2h05m"),
        (86400 * 3 + 4 * 3600, "3d04h"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (12_345_678, "12.3 MB"), (5e15, "5000.0 TB")]
)
def test_size(count: float, text: str) -> None:
    assert wording.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (math.nan, "-"), (0.70214, "0.7021"), (1234567, "1.235e+06")]
)
def test_number(value: float | None, text: str) -> None:
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("code", "text"),
    [(None, "-"), (0, "0 (success)"), (137, "137 (killed)"), (93, "93 (no restart)"), (77, "77")],
)
def test_exit_code(code: int | None, text: str) -> None:
    assert wording.exit_code(code) == text


def test_one_line() -> None:
    assert wording.one_line("a\x1b[2J\tb\nc") == "a\\x1b[2J\\x09b"
    assert wording.one_line("\udcff\u2028") == "\\udcff"
    assert wording.one_line("\ufeffname \U000e0001") == "\\ufeffname \\U000e0001"
    assert len(wording.one_line("x" * 100_000)) < 600


def test_an_exception_without_a_message_is_its_name() -> None:
    data = {"exit_code": 1, "exception": "builtins.MemoryError", "message": "", "cause": "user_error"}
    exited = wording.event_line(Event(1.0, Kind.WORKER_EXITED, 1, 0, data))
    assert exited == "rank 0 left with exit code 1 (user error): MemoryError"
    ended = wording.event_line(Event(1.0, Kind.ROUND_ENDED, 1, 0, data))
    assert ended.endswith("rank 0: MemoryError")
    assert wording.one_line("") == ""
    assert wording.one_line("größer") == "größer"


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (Kind.RUN_STARTED, {"workers": 2, "resumed": False}, "run started: 2 workers"),
        (Kind.RUN_STARTED, {"workers": 1, "resumed": True}, "run resumed: 1 worker"),
        (Kind.WORKER_EXITED, {"exit_code": 0}, "rank 1 is done"),
        (Kind.WORKER_EXITED, {"exit_code": 137, "after_kill": True}, "rank 1 was killed to end the round"),
        (
            Kind.WORKER_EXITED,
            {
                "exit_code": 1,
                "section": "step",
                "step": 7,
                "exception": "builtins.ValueError",
                "message": "boom",
            },
            "rank 1 left with exit code 1 (user error) in section step at step 7: ValueError: boom",
        ),
        (
            Kind.ROUND_ENDED,
            {"cause": "finished", "seconds": 3},
            "round 2 ended after 3.0 s: the work is done",
        ),
        (
            Kind.ROUND_ENDED,
            {"cause": "killed", "seconds": 3, "message": "died of SIGKILL"},
            "round 2 ended after 3.0 s: rank 1: died of SIGKILL",
        ),
        (
            Kind.RESTARTING,
            {"restarts_used": 1, "restarts_left": 9, "delay_s": 2.0},
            "restarting in 2.0 s: restart 1, 9 left",
        ),
        (
            Kind.STOP_REQUESTED,
            {"by": "SIGINT", "now": True},
            "asked again to stop by SIGINT: killing the workers",
        ),
        (
            Kind.PROGRESS,
            {"step": 20, "metrics": {"loss": 0.5, "x": None}, "examples_per_s": 812.4},
            "step 20: loss 0.5, 812 examples/s",
        ),
        (Kind.EVALUATED, {"step": 20, "metrics": {"auc": 0.7}}, "evaluated at step 20: auc 0.7"),
        (
            Kind.CHECKPOINT_COMMITTED,
            {"step": 20, "bytes": 1_500_000, "seconds": 0.21},
            "checkpoint of step 20 committed (1.5 MB in 0.2 s)",
        ),
        (Kind.WARNING, {"message": "careful"}, "warning of rank 1: careful"),
    ],
)
def test_event_line(kind: Kind, data: dict[str, Any], text: str) -> None:
    assert wording.event_line(Event(0.0, kind, 2, 1, data)) == text


_ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.lists(st.integers())
)
_KEYS = [
    "step",
    "metrics",
    "exit_code",
    "exception",
    "message",
    "seconds",
    "workers",
    "bytes",
    "delay_s",
    "cause",
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(Kind)),
    st.dictionaries(
        st.sampled_from(_KEYS), st.one_of(_ANY, st.dictionaries(st.text(max_size=3), _ANY)), max_size=5
    ),
    st.floats(),
)
def test_no_event_breaks_its_line(kind: Kind, data: dict[str, Any], time: float) -> None:
    line = wording.event_line(Event(time, kind, None, None, data))
    assert line.isprintable()
    assert wording.clock(time)
