"""Job file, overrides or a command line -> `LoadedJob`. Owns the order of checks and the provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phalanx.errors import SpecError
from phalanx.spec import check
from phalanx.spec.document import Node, parse
from phalanx.spec.job import JobSpec, LoadedJob
from phalanx.spec.names import is_function, job_name_from
from phalanx.spec.overrides import apply
from phalanx.spec.problems import Place, Problem, printable, spec_error
from phalanx.spec.resolve import resolve
from phalanx.spec.source import read_source

__all__ = ["LoadedJob", "job_from_script", "load_job"]

API_VERSION = "phalanx/v1"
KIND = "TrainingJob"


def load_job(path: Path, overrides: Sequence[str] = ()) -> LoadedJob:
    """Read the job file at `path`; `overrides` are the texts of `--set`, such as "train.steps=200".

    Raises SpecError with every problem found, each with its place.
    """
    if path.suffix == ".py" and path.is_file():
        name = printable(str(path))
        raise SpecError(f"{name} is a Python script, not a job file", f"run it with: phalanx run {name} -n 2")
    text = read_source(path)
    name = printable(str(path))
    document = parse(text, name)
    if document.root is None:
        raise spec_error(name, document.problems)
    base = path.absolute().parent
    spec, provenance = _specify(document.root, overrides, base, name, document.problems)
    return LoadedJob(spec, provenance, path.absolute(), text)


def job_from_script(
    script: Path, workers: int, args: Sequence[str] = (), overrides: Sequence[str] = ()
) -> LoadedJob:
    """The job of `phalanx run train.py -n 4 -- args`: no job file, workers start in the current directory.

    `script` may also be `module:function`. Raises SpecError with every problem found, each with its place on
    the command line.
    """
    target = str(script)
    name = target.partition(":")[0].rpartition(".")[2] if is_function(target) else script.stem
    here = Place(f"the script {printable(target)}")
    rest = Place("the arguments after --")
    fixed = Place("fixed")
    root = Node(
        {
            "apiVersion": _text(API_VERSION, fixed),
            "kind": _text(KIND, fixed),
            "name": _text(job_name_from(name), here),
            "entrypoint": _text(target, here),
            "args": Node([_text(argument, rest) for argument in args], rest),
            "workers": Node({"count": Node(workers, Place(f"-n {workers}"), str(workers), True)}, fixed),
        },
        Place("the command line"),
    )
    spec, provenance = _specify(root, overrides, Path.cwd(), "the command line", [])
    return LoadedJob(spec, provenance, None, "")


def _text(text: str, place: Place) -> Node:
    return Node(text, place, text)


def _specify(
    root: Node, overrides: Sequence[str], base: Path, source: str, known: Sequence[Problem]
) -> tuple[JobSpec, dict[str, str]]:
    """Apply, check and resolve a document; `known` is what is wrong with it already. Raises SpecError."""
    problems = [*known]
    if isinstance(root.content, dict):
        problems += apply(root, overrides)
    checked, found = check.check(root)
    problems += found
    spec = None
    if checked is not None:
        spec, found = resolve(checked, root, base)
        problems += found
    if spec is None or problems:
        raise spec_error(source, problems)
    return spec, _provenance(root, spec)


def _provenance(root: Node, spec: JobSpec) -> dict[str, str]:
    """Where each value of the job came from: the place of what was written, else "default"."""
    written = {check.dotted(path): node.place.origin for path, node in check.walk(root) if path}
    # min and max are two ways to write the count.
    written.setdefault("workers.count", written.get("workers.max", "default"))
    return {path: written.get(path, "default") for path in _leaves(asdict(spec)) if path != "working_dir"}


def _leaves(values: Mapping[str, Any], above: str = "") -> list[str]:
    """The dotted paths of all values that hold no further ones by name."""
    paths = []
    for name, value in values.items():
        path = f"{above}{name}"
        nested = isinstance(value, dict) and path != "entrypoint"
        paths += _leaves(value, f"{path}.") if nested else [path]
    return paths
