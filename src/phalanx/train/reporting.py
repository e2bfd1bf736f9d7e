"""Says how training goes: on the board for the agent, in the event log and in the worker's log for people.

Without an agent only the log remains. Decides nothing.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.contract import EVENTS_FILE, WorkerEnv, board_file
from phalanx.events.board import BoardWriter
from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog

logger = logging.getLogger("phalanx.train")


class Reporter:
    """The worker's voice. Events and information are the chief's; warnings are anyone's.

    `board` and `events` are None without an agent.
    """

    def __init__(self, env: WorkerEnv | None) -> None:
        self.board: BoardWriter | None = None
        self.events: EventLog | None = None
        self._round = env.round if env else None
        self._rank = env.rank if env else 0
        if env is not None:
            self.board = BoardWriter(board_file(Path(env.run_dir), env.round, env.rank))
            self.events = EventLog(Path(env.run_dir) / EVENTS_FILE)
        _log_to_stdout(self._rank)

    def section(self, name: str) -> None:
        """Note the section (one of `phalanx.contract.SECTIONS`) on the board."""
        if self.board is not None:
            self.board.section(name)

    def event(self, kind: Kind, **data: Any) -> None:
        """Append an event of the chief; other ranks say nothing."""
        if self.events is not None and self._rank == 0:
            self.events.append(kind, round_number=self._round, rank=self._rank, **data)

    def warning(self, message: str) -> None:
        """Log a warning and append it as an event, on any rank."""
        logger.warning(message)
        if self.events is not None:
            self.events.append(Kind.WARNING, round_number=self._round, rank=self._rank, message=message)

    def info(self, message: str) -> None:
        """Log one line; only the chief's is shown."""
        logger.info(message)


def _log_to_stdout(rank: int) -> None:
    """Send this package's log to standard output, unless the script configured logging itself."""
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("phalanx: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False


def numbers(metrics: Mapping[str, float]) -> str:
    """Metrics on one line: `loss 0.3127  auc 0.7012`."""
    return "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
