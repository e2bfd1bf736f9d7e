"""What a training run saves and restores: the worker's use of `phalanx.checkpoint`.

Owns the policy (what if it fails, what is told); when to save is `schedule`'s, the model's state is
`snapshot`'s, the files are the checkpoint room's.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import phalanx
from phalanx.checkpoint import payload, retention, store
from phalanx.checkpoint.commit import commit
from phalanx.checkpoint.manifest import Manifest
from phalanx.errors import CheckpointError, FencedError
from phalanx.events.kinds import Kind
from phalanx.events.log import EventLog
from phalanx.train import snapshot

_log = logging.getLogger(__name__)
# A final save has the grace period of a stop at most; a disk that stays full is told, not waited for.
FINAL_ATTEMPTS = 3
FINAL_PAUSE_S = 1.0


@dataclass(frozen=True)
class Restored:
    """What training goes on from: `step` steps are done, `data_position` is what was passed to `save`."""

    step: int
    data_position: Mapping[str, Any]
    path: Path


class Checkpoints:
    """Saves and restores the training state of one model in one directory, for one round.

    Every rank has one and calls the same methods; only the chief (rank 0) writes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep: int,
        rank: int,
        round_number: int,
        world_size: int,
        fence: str | None,
        job: str,
        job_hash: str,
        seed: int | None = None,
        events: EventLog | None = None,
    ) -> None:
        """Touches no file. `fence` is the agent's token, None without an agent; without `events` only the log
        is told.
        """
        self.directory = directory
        self._keep = keep
        self._rank = rank
        self._round = round_number
        self._world_size = world_size
        self._fence = fence or None
        self._job = job
        self._job_hash = job_hash
        self._seed = seed
        self._events = events
        self._newest: Restored | None = None

    def restore(self, model: Any) -> Restored | None:
        """Bring `model` to the newest checkpoint that verifies; None when there is none.

        Call it on every rank, within the strategy's scope, with a built model and before the first step: it
        creates the optimizer's variables also when there is nothing to restore. Each rank verifies for itself
        and no collective is used, so the caller must compare `step` over the ranks before it trains: a disk
        that fails for one rank only could make them differ. Seed generators get the chief's state.

        Raises CheckpointMismatchError when the checkpoint is of another model, CheckpointError when the
        directory cannot be read, IncompatibleError when a newer Phalanx wrote it.
        """
        began = time.monotonic()
        snapshot.prepare(model)
        found = store.newest_valid(self.directory, self._tell_corrupt)
        restored = None
        if found is not None:
            try:
                arrays = payload.read(found.path / store.STATE_FILE)
            except OSError as error:
                raise CheckpointError(
                    f"{found.path} verified, but then could not be read: {error}"
                ) from error
            snapshot.apply(model, arrays)
            restored = Restored(found.step, found.manifest.data_position, found.path)
            self._newest = restored
        if self._rank == 0:
            self._clean()
            if restored is not None:
                seconds = round(time.monotonic() - began, 3)
                self._tell(
                    Kind.CHECKPOINT_RESTORED, step=restored.step, path=str(restored.path), seconds=seconds
                )
        return restored

    def save(
        self, model: Any, step: int, data_position: Mapping[str, Any], *, final: bool = False
    ) -> Path | None:
        """Commit the state after `step` steps; return its path, None on other ranks and after a failure.

        Call it on every rank. `data_position` must be JSON. A periodic save that fails is told (an event, a
        line in the log) and training goes on; a final one is tried again, and then raises CheckpointError.
        Raises FencedError at once: this round is over. A step that was saved or restored in this round is not
        written again.
        """
        if self._rank != 0:
            return None
        if self._newest is not None and self._newest.step == step:
            return self._newest.path
        for attempts_left in reversed(range(FINAL_ATTEMPTS if final else 1)):
            try:
                return self._commit(model, step, data_position)
            except FencedError:
                raise
            except CheckpointError as error:
                self._tell(Kind.CHECKPOINT_FAILED, step=step, message=error.message)
                _log.warning("checkpoint of step %d not saved: %s", step, error)
                if final and not attempts_left:
                    raise
            if attempts_left:
                time.sleep(FINAL_PAUSE_S)
        return None

    def _commit(self, model: Any, step: int, data_position: Mapping[str, Any]) -> Path:
        began = time.monotonic()
        draft = Manifest(
            step=step,
            round=self._round,
            world_size=self._world_size,
            job=self._job,
            job_hash=self._job_hash,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            data_position=dict(data_position),
            seed=self._seed,
            versions=library_versions(),
        )
        committed = commit(self.directory, snapshot.take(model), draft, self._fence)
        self._tell(
            Kind.CHECKPOINT_COMMITTED,
            step=step,
            path=str(committed.path),
            bytes=committed.manifest.size_bytes,
            seconds=round(time.monotonic() - began, 3),
        )
        self._newest = Restored(step, draft.data_position, committed.path)
        self._prune(committed.path)
        return committed.path

    def _prune(self, newest: Path) -> None:
        """Remove old checkpoints. What cannot be removed is told: the new one is committed all the same."""
        try:
            retention.prune(self.directory, self._keep, newest)
        except CheckpointError as error:
            self._warn(error)

    def _clean(self) -> None:
        """Remove leftovers of dead writers. A directory that cannot be written is told at the first save."""
        try:
            retention.clean_leftovers(self.directory)
        except CheckpointError as error:
            self._warn(error)

    def _tell_corrupt(self, corrupt: store.Corrupt) -> None:
        moved_to = str(corrupt.moved_to) if corrupt.moved_to else None
        self._tell(
            Kind.CHECKPOINT_CORRUPT, path=str(corrupt.path), moved_to=moved_to, message=corrupt.message
        )
        place = (
            f"set aside as {corrupt.moved_to.name}" if corrupt.moved_to else "skipped (it cannot be renamed)"
        )
        _log.warning("checkpoint %s: %s; %s", corrupt.path, corrupt.message, place)

    def _warn(self, error: CheckpointError) -> None:
        self._tell(Kind.WARNING, message=error.message)
        _log.warning("%s", error)

    def _tell(self, kind: Kind, **data: Any) -> None:
        if self._events is not None:
            self._events.append(kind, round_number=self._round, rank=self._rank, **data)


def library_versions() -> dict[str, str]:
    """Versions of what wrote a checkpoint, for its manifest."""
    return {
        "phalanx": phalanx.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
    }
