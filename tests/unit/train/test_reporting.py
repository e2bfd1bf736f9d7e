"""What the worker says, with an agent and without."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.contract import EVENTS_FILE, WorkerEnv, board_file
from phalanx.events.board import read_board
from phalanx.events.kinds import Kind
from phalanx.events.log import EventReader
from phalanx.train.reporting import Reporter, numbers


@pytest.fixture(autouse=True)
def own_logger() -> Iterator[None]:
    logger = logging.getLogger("phalanx.train")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield
    logger.setLevel(before[0])
    logger.propagate = before[1]
    logger.handlers[:] = before[2]


def environment(run_dir: Path, rank: int) -> WorkerEnv:
    return WorkerEnv(str(run_dir), "job", "0", 2, rank, 2, rank, "", "ckpt", 5, 5, 1.0)


def test_only_the_chief_tells_events_and_anyone_warns(tmp_path: Path) -> None:
    for rank in (0, 1):
        reporter = Reporter(environment(tmp_path, rank))
        reporter.event(Kind.EVALUATED, step=4)
        reporter.warning("careful")
    events = list(EventReader(tmp_path / EVENTS_FILE).read_new())
    assert [(event.kind, event.rank, event.round) for event in events] == [
        (Kind.EVALUATED, 0, 2),
        (Kind.WARNING, 0, 2),
        (Kind.WARNING, 1, 2),
    ]


def test_the_board_knows_the_section(tmp_path: Path) -> None:
    reporter = Reporter(environment(tmp_path, 1))
    reporter.section("evaluate")
    board = read_board(board_file(tmp_path, 2, 1))
    assert board is not None
    assert board.section == "evaluate"


def test_without_an_agent_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reporter = Reporter(None)
    reporter.section("step")
    reporter.event(Kind.PROGRESS, step=1)
    reporter.warning("careful")
    assert reporter.board is None
    assert list(tmp_path.iterdir()) == []


def test_metrics_on_one_line() -> None:
    assert numbers({"loss": 0.31271, "auc": 0.5}) == "loss 0.3127  auc 0.5000"
