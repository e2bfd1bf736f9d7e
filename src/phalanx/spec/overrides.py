"""`--set PATH=VALUE`: a value given on the command line takes its place in the document. Pure.

Owns the grammar of overrides. Whether the values are right is checked with the rest of the document; the
place of each is the override itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from phalanx.spec.document import UNUSABLE, Node, parse, usable
from phalanx.spec.problems import Place, Problem, printable
from phalanx.spec.schema import schema_at

_SHOWN_CHARACTERS = 80
_PATH = re.compile(r"(env\.[^=]+|[^=.\[\]]+(?:\.[^=.\[\]]+)*)=(.*)", re.DOTALL)
_HOW = "write --set PATH=VALUE, such as --set train.steps=200"


def apply(root: Node, overrides: Sequence[str]) -> list[Problem]:
    """Put every override into the tree below `root`, in order, the last of a path wins; return what is wrong.

    A value for text (`env.NAME`, `name`, `checkpoint.dir`) is taken to the letter, any other is read as YAML:
    `args=[--lr, 0.1]`. It stands as it would in the file: paths are relative to the job file.
    """
    problems = []
    for override in overrides:
        problems += _apply_one(root, override)
    return problems


def _apply_one(root: Node, override: str) -> list[Problem]:
    place = Place("--set " + _cut(printable(override)))
    if not usable(override):
        return [Problem(place, "", UNUSABLE, "give text that is UTF-8")]
    found = _PATH.fullmatch(override)
    if found is None:
        whole_list = (
            " (a list is set as a whole: --set 'args=[a, b]')" if "[" in override.split("=")[0] else ""
        )
        return [Problem(place, "", "is not PATH=VALUE", _HOW + whole_list)]
    path = tuple(found[1].split(".", 1) if found[1].startswith("env.") else found[1].split("."))
    value, problems = _value(found[2], path, place)
    if value is None:
        return problems
    section = root
    for step in path[:-1]:
        if not isinstance(section.content, dict):
            return [
                Problem(place, ".".join(path), "the job file has a plain value where this path goes on", _HOW)
            ]
        section = section.content.setdefault(step, Node({}, place, key=place))
        if section.content is None:  # `train:` without anything below it
            section.content = {}
    if not isinstance(section.content, dict):
        return [
            Problem(place, ".".join(path), "the job file has a plain value where this path goes on", _HOW)
        ]
    section.content[path[-1]] = value
    return []


def _value(text: str, path: tuple[str, ...], place: Place) -> tuple[Node | None, list[Problem]]:
    """The node for what stands after the equals sign."""
    if "string" in str(schema_at(path).get("type")):
        return Node(text, place, text, key=place), []
    document = parse(text or "null", place.source)
    if document.root is None or document.problems:
        path_text = ".".join(path)
        return None, [Problem(place, path_text, problem.what, problem.fix) for problem in document.problems]
    _settle(document.root, place)
    return document.root, []


def _settle(node: Node, place: Place) -> None:
    """Say of a node and all below it that it stands in the override: it has no line of its own."""
    node.place, node.key = place, place
    if isinstance(node.content, dict):
        for child in node.content.values():
            _settle(child, place)
    elif isinstance(node.content, list):
        for child in node.content:
            _settle(child, place)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
