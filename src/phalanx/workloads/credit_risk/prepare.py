"""Makes the training arrays once and keeps them on disk: `python -m phalanx.workloads.credit_risk.prepare`.

Many workers may ask at once: one prepares, the others wait for it. A reader never sees half a file.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phalanx.contract import HOME_ENV
from phalanx.errors import InfrastructureError, PhalanxError
from phalanx.workloads.credit_risk import data, vocabulary

_FORMAT = 1  # raise it when the meaning of the file changes
_WAIT_S = 600.0


@dataclass(frozen=True)
class Settings:
    """What the prepared arrays depend on, besides the columns and their spelling."""

    vocabulary_size: int = 512
    sequence_length: int = 42
    validation_share: float = data.VALIDATION_SHARE

    def key(self) -> str:
        """Names the arrays: other settings, columns or spellings give another key."""
        content = json.dumps([_FORMAT, asdict(self), repr(data.COLUMNS)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Prepared:
    """Token numbers, int32 (loans, sequence_length), and outcomes, int8 (loans,), 1 for bad."""

    vocabulary: tuple[str, ...]
    training_tokens: NDArray[np.int32]
    training_bad: NDArray[np.int8]
    validation_tokens: NDArray[np.int32]
    validation_bad: NDArray[np.int8]

    def training_weights(self) -> NDArray[np.float32]:
        """One weight a training loan, so that good and bad loans count alike in sum."""
        good, bad = data.class_weights(self.training_bad.astype(bool).tolist())
        return np.where(self.training_bad == 1, bad, good).astype(np.float32)


def default_directory() -> Path:
    """Where prepared arrays are kept when no directory is named: `cache` under Phalanx's home."""
    return Path(os.environ.get(HOME_ENV) or Path.home() / ".phalanx") / "cache" / "credit-risk"


def prepared(directory: Path, settings: Settings | None = None) -> Prepared:
    """The arrays for `settings` out of `directory`, made first if they are not there yet.

    Raises what `data.load_loans` raises, and InfrastructureError when the directory cannot be written or
    another process prepares for more than ten minutes.
    """
    settings = settings or Settings()
    path = directory / f"loans-{settings.key()}.npz"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with _locked(directory / ".lock"):
                if not path.exists():
                    _write(path, encode(data.load_loans(), settings))
        return _read(path)
    except OSError as error:
        raise InfrastructureError(
            f"prepared data cannot be kept in {directory}: {error.strerror or error}",
            "name a directory that can be written with --cache",
        ) from error


def encode(loans: Sequence[data.Loan], settings: Settings) -> Prepared:
    """Split, write as texts, learn the vocabulary from the training part, and number the tokens."""
    training = [loan for loan in loans if not data.in_validation(loan, settings.validation_share)]
    validation = [loan for loan in loans if data.in_validation(loan, settings.validation_share)]
    training_texts = [data.text_of(loan) for loan in training]
    words = vocabulary.learn(training_texts, settings.vocabulary_size)
    validation_texts = [data.text_of(loan) for loan in validation]
    return Prepared(
        vocabulary=tuple(words),
        training_tokens=vocabulary.encode(training_texts, words, settings.sequence_length),
        training_bad=np.array([loan.bad for loan in training], dtype=np.int8),
        validation_tokens=vocabulary.encode(validation_texts, words, settings.sequence_length),
        validation_bad=np.array([loan.bad for loan in validation], dtype=np.int8),
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; the kernel frees it when its holder dies. Raises InfrastructureError after ten minutes."""
    deadline = time.monotonic() + _WAIT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InfrastructureError(
                        f"another process has held {path} for {_WAIT_S:.0f} s",
                        "end that process, or name another directory with --cache",
                    ) from None
                time.sleep(0.1)
        yield


def _write(path: Path, arrays: Prepared) -> None:
    """Write by rename. Strings are kept as a Unicode array, so that reading needs no pickle."""
    part = path.with_suffix(f".part-{os.getpid()}")
    content: dict[str, Any] = {**vars(arrays), "vocabulary": np.array(arrays.vocabulary, dtype=np.str_)}
    try:
        with part.open("wb") as file:
            np.savez(file, **content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> Prepared:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    words = tuple(str(word) for word in arrays.pop("vocabulary"))
    return Prepared(vocabulary=words, **arrays)


def main() -> None:
    """Prepare ahead of training, so that no worker has to."""
    parser = argparse.ArgumentParser(description="Prepare the Lending Club loans for training.")
    parser.add_argument("--cache", type=Path, default=default_directory(), help="where to keep the arrays")
    try:
        prepared(parser.parse_args().cache)
    except PhalanxError as error:
        parser.exit(error.exit_code, f"{error}\n")


if __name__ == "__main__":
    main()
