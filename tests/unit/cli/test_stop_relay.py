"""Requests to stop: which signal goes to the agent, and when."""

from __future__ import annotations

import signal

import pytest

from phalanx.cli.stopping import ACKNOWLEDGE_WAIT_S, OVERDUE_S, READY_WAIT_S, StopRelay

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def relay(*requests: tuple[int, float]) -> StopRelay:
    made = StopRelay(grace_s=30.0, began_s=0.0)
    for signum, at_s in requests:
        made.request(signum, at_s)
    return made


def drain(made: StopRelay, now_s: float = 100.0) -> list[int]:
    """All that would be sent to an agent that answers at once."""
    sent: list[int] = []
    while (signum := made.due(now_s, agent_ready=True, acknowledged=len(sent))) is not None:
        sent.append(signum)
    return sent


@pytest.mark.parametrize(
    ("requests", "sent"),
    [
        ([], []),
        ([(INT, 10.0)], [INT]),
        ([(INT, 10.0), (INT, 10.05)], [INT]),  # one request that came twice
        ([(TERM, 10.0), (HUP, 10.05)], [TERM]),
        ([(INT, 10.0), (INT, 11.0)], [INT, INT]),
        ([(INT, 10.0), (TERM, 11.0)], [INT, TERM]),
        ([(INT, 10.0), (INT, 11.0), (INT, 12.0)], [INT, INT]),  # a third is never needed
        ([(HUP, 10.0), (HUP, 11.0)], [HUP]),  # a terminal that goes away tells it more than once
        ([(INT, 10.0), (HUP, 11.0)], [INT]),
        ([(HUP, 10.0), (TERM, 11.0)], [HUP, TERM]),
    ],
)
def test_what_is_sent(requests: list[tuple[int, float]], sent: list[int]) -> None:
    assert drain(relay(*requests)) == sent


def test_an_agent_that_does_not_listen_yet_is_waited_for_but_not_for_ever() -> None:
    made = relay((INT, 0.1))
    assert made.due(0.2, agent_ready=False, acknowledged=0) is None
    assert made.due(0.3, agent_ready=True, acknowledged=0) == INT
    deaf = relay((INT, 0.1))
    assert deaf.due(READY_WAIT_S + 0.1, agent_ready=False, acknowledged=0) == INT


def test_the_second_waits_until_the_first_was_heard_but_not_for_ever() -> None:
    made = relay((INT, 10.0), (INT, 10.5))
    assert made.due(11.0, agent_ready=True, acknowledged=0) == INT
    assert made.due(11.1, agent_ready=True, acknowledged=0) is None
    assert made.due(11.2, agent_ready=True, acknowledged=1) == INT
    deaf = relay((INT, 10.0), (INT, 10.5))
    assert deaf.due(11.0, agent_ready=True, acknowledged=0) == INT
    assert deaf.due(11.0 + ACKNOWLEDGE_WAIT_S, agent_ready=True, acknowledged=0) == INT


def test_overdue() -> None:
    assert not relay().is_overdue(1e9)
    once, twice = relay((INT, 10.0)), relay((INT, 10.0), (INT, 12.0))
    assert not once.is_overdue(10.0 + OVERDUE_S + 29.0)
    assert once.is_overdue(10.0 + OVERDUE_S + 31.0)
    assert not twice.is_overdue(12.0 + OVERDUE_S - 1.0)
    assert twice.is_overdue(12.0 + OVERDUE_S + 1.0)
