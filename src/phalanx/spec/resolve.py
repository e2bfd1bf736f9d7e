"""A checked job file -> `JobSpec`: what one field cannot say alone, and what the file system must agree to.

Owns paths (relative to the job file, made absolute) and rules between fields. Reads no file's content.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.spec import check
from phalanx.spec.document import Node
from phalanx.spec.job import (
    CheckpointSpec,
    EntrypointSpec,
    FailureSpec,
    JobSpec,
    LogsSpec,
    TrainSpec,
    WorkersSpec,
)
from phalanx.spec.names import is_function
from phalanx.spec.problems import Problem, printable, shown
from phalanx.spec.schema import JobFile


@dataclass
class _Resolver:
    root: Node
    base: Path
    problems: list[Problem] = field(default_factory=list)

    def note(self, path: tuple[str | int, ...], what: str, fix: str) -> None:
        """Note a problem with the value at `path`, or with the section that it is missing from."""
        node = check.find(self.root, path) or check.find(self.root, path[:-1]) or self.root
        self.problems.append(Problem(node.place, check.dotted(path), what, fix))


def resolve(checked: JobFile, root: Node, base: Path) -> tuple[JobSpec | None, list[Problem]]:
    """The job that `checked` means, with paths below `base`; or None and what is wrong."""
    to = _Resolver(root, base)
    train = checked.train
    workers = _workers(to, checked)
    if train.global_batch is not None and train.global_batch < workers.count:
        to.note(
            ("train", "global_batch"),
            f"{train.global_batch} examples are too few for {workers.count} workers",
            f"each worker needs one: write {workers.count} or more, or ask for fewer workers",
        )
    spec = JobSpec(
        name=checked.name,
        entrypoint=_entrypoint(to, checked.entrypoint),
        working_dir=str(base),
        args=tuple(checked.args),
        env=dict(checked.env),
        workers=workers,
        train=TrainSpec(train.steps, train.global_batch, train.seed, train.precision, train.xla),
        checkpoint=CheckpointSpec(
            dir=_directory(to, ("checkpoint", "dir"), checked.checkpoint.dir),
            every_steps=checked.checkpoint.every_steps,
            keep=checked.checkpoint.keep,
        ),
        failure=FailureSpec(**checked.failure.model_dump()),
        logs=LogsSpec(_directory(to, ("logs", "dir"), checked.logs.dir), checked.logs.tail_lines),
    )
    return (None if to.problems else spec), to.problems


def _workers(to: _Resolver, checked: JobFile) -> WorkersSpec:
    workers = checked.workers
    if workers.count is not None:
        for name in ("min", "max"):
            if getattr(workers, name) is not None:
                to.note(("workers", name), "does not go with workers.count", "write count, or min and max")
    elif (workers.min is None) != (workers.max is None):
        missing = "min" if workers.min is None else "max"
        to.note(("workers", missing), "is missing: min and max go together", "write both, or count")
    elif workers.min is not None and workers.max is not None and workers.min != workers.max:
        what = f"{workers.max} is not equal to workers.min, {workers.min}"
        fix = f"a changing number of workers is not supported yet: write `count: {workers.max}`"
        to.note(("workers", "max"), what, fix)
    return WorkersSpec(workers.count or workers.max or workers.min or 1, workers.cpus)


def _entrypoint(to: _Resolver, text: str) -> EntrypointSpec:
    if is_function(text):
        return EntrypointSpec("function", text)
    path = _absolute(to, ("entrypoint",), text)
    if path is None:
        return EntrypointSpec("script", text)
    trouble = _script_trouble(path)
    if trouble:
        to.note(("entrypoint",), f"{shown(text)}: {trouble}", _script_fix(path, text, to.base))
    return EntrypointSpec("script", str(path))


def _script_trouble(path: Path) -> str:
    """Why `path` cannot be run as a script; empty when it can."""
    tests: tuple[tuple[Callable[[], bool], str], ...] = (
        (path.exists, "there is no such file"),
        (path.is_file, "is not a file"),
        (lambda: os.access(path, os.R_OK), "cannot be read"),
    )
    try:
        return next((words for test, words in tests if not test()), "")
    except OSError as error:  # a name that is too long, a loop of links, a directory that may not be read
        return f"cannot be read: {error.strerror}"


def _script_fix(path: Path, text: str, base: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    if close and close[0] != path.name:
        return f"did you mean {printable(close[0])}? The path is relative to {printable(str(base))}"
    if ":" in text:
        return "write a script's path, or `module:function` with Python names on both sides of the colon"
    return f"name a Python script; the path is relative to {printable(str(base))}"


def _directory(to: _Resolver, path: tuple[str, ...], text: str | None) -> str | None:
    if text is None:
        return None
    found = _absolute(to, path, text)
    try:
        if found is not None and found.exists() and not found.is_dir():
            to.note(path, f"{shown(text)} is a file", "name a directory; it is made when it is missing")
    except OSError as error:
        to.note(path, f"{shown(text)} cannot be read: {error.strerror}", "name another directory")
    return str(found)


def _absolute(to: _Resolver, path: tuple[str, ...], text: str) -> Path | None:
    """`text` as an absolute path below the base; None when it names none."""
    if not text.isprintable():
        to.note(path, f"{shown(text)} holds a control character", "write a path on one line")
        return None
    if "$" in text:
        to.note(path, f"{shown(text)}: variables are not expanded here", "write the path itself")
        return None
    try:
        expanded = Path(text).expanduser()
    except RuntimeError:  # ~nobody-of-that-name
        to.note(path, f"{shown(text)}: the home directory is not known", "write the path itself")
        return None
    return Path(os.path.normpath(to.base / expanded))
