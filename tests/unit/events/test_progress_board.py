"""The board: what a worker notes is what the agent reads, and what is no board is none."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from phalanx.events.board import SIZE_BYTES, BoardWriter, read_board


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    path = tmp_path / "round-0001" / "rank-0.board"
    board = BoardWriter(path)
    fresh = read_board(path)
    assert fresh is not None
    assert (fresh.pid, fresh.section, fresh.target_steps) == (os.getpid(), "setup", 0)
    assert math.isnan(fresh.loss)
    assert math.isnan(fresh.examples_per_s)

    board.begin_training(start_step=500, target_steps=900)
    board.section("step")
    board.steps_begun(508)
    board.steps_done(504, examples=64)
    board.measured(loss=0.25, examples_per_s=1000.0)
    noted = read_board(path)
    assert noted is not None
    assert (noted.section, noted.start_step, noted.target_steps) == ("step", 500, 900)
    assert (noted.steps_begun, noted.steps_done, noted.examples_done) == (508, 504, 64)
    assert (noted.loss, noted.examples_per_s) == (0.25, 1000.0)
    assert noted.last_step_s >= noted.section_since_s >= fresh.section_since_s > 0
    assert path.stat().st_size == SIZE_BYTES


@pytest.mark.parametrize("content", [b"", bytes(SIZE_BYTES), b"\xff" * SIZE_BYTES, b"x" * (SIZE_BYTES - 1)])
def test_what_is_no_board_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank-0.board"
    path.write_bytes(content)
    assert read_board(path) is None


def test_a_section_out_of_the_table_is_no_board(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.board"
    BoardWriter(path)
    raw = bytearray(path.read_bytes())
    raw[16:24] = (99).to_bytes(8, "little")
    path.write_bytes(raw)
    assert read_board(path) is None


def test_there_is_none_before_a_worker_made_it(tmp_path: Path) -> None:
    assert read_board(tmp_path / "rank-0.board") is None
