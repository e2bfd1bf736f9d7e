"""A document tree -> a checked `JobFile`, or everything that is wrong with it. Pure.

Owns the words of the messages: the schema says what would be right, the tree where the value stands.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from phalanx.spec.document import UNUSABLE, Node, usable
from phalanx.spec.names import ENV_NAME_RULE, env_name_problem
from phalanx.spec.problems import Place, Problem, shown
from phalanx.spec.schema import JobFile, schema_at

Path = tuple[str | int, ...]

_LONGEST_SUGGESTION = 15

# What YAML 1.1 reads as true or false; some tools still do. In YAML 1.2 they are text.
_YAML_1_1_WORDS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_NUMBER_WITH_MORE = re.compile(r"([-+]?[0-9][0-9_,]*)\s*[a-zA-Z%]*")


def check(root: Node) -> tuple[JobFile | None, list[Problem]]:
    """The checked document, or None and what is wrong with each value."""
    problems: dict[Path, Problem] = {}
    checked = None
    try:
        checked = JobFile.model_validate(_data(root, ()))
    except ValidationError as error:
        for found in error.errors(include_url=False):
            path = _path_in(root, found["loc"], found["type"])
            problems.setdefault(path, _explain(root, path, found["type"]))
    for path, node in walk(root):
        problem = _beyond_the_schema(path, node)
        if problem and not any(path[:length] in problems for length in range(len(path) + 1)):
            problems[path] = problem
    told = [
        problem
        for path, problem in problems.items()
        if not _is_broken(root, path) and not _is_misspelt(root, path, problems)
    ]
    return checked if not problems else None, told


def walk(node: Node, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """Every node below and with `node`, with its path."""
    yield path, node
    for step, child in _children(node):
        yield from walk(child, (*path, step))


def dotted(path: Path) -> str:
    """`("args", 0)` as a person writes it: `args[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def find(root: Node, path: Path) -> Node | None:
    """The node at `path`; None when there is none."""
    node = root
    for step in path:
        content = node.content
        if isinstance(content, dict) and step in content:
            node = content[str(step)]
        elif isinstance(content, list) and isinstance(step, int) and step < len(content):
            node = content[step]
        else:
            return None
    return node


def _children(node: Node) -> Sequence[tuple[str | int, Node]]:
    if isinstance(node.content, dict):
        return tuple(node.content.items())
    return tuple(enumerate(node.content)) if isinstance(node.content, list) else ()


def _data(node: Node, path: Path) -> Any:
    """The tree as plain data. Where text is expected and numbers are taken, numbers are text as written."""
    if isinstance(node.content, (dict, list)):
        children = {step: _data(child, (*path, step)) for step, child in _children(node)}
        return children if isinstance(node.content, dict) else list(children.values())
    is_number = isinstance(node.content, (int, float)) and not isinstance(node.content, bool)
    if is_number and schema_at(path).get("type") == ["string", "number"]:
        return node.text
    return node.content


def _path_in(root: Node, location: Path, kind: str) -> Path:
    """pydantic's location as a path of the tree: without its names for the branches of a union at the end."""
    length = len(location)
    while kind != "missing" and find(root, location[:length]) is None:
        length -= 1
    return location[:length]


def _is_broken(root: Node, path: Path) -> bool:
    """Whether the value, or what it is part of, was told already as no proper YAML."""
    nodes = (find(root, path[:length]) for length in range(len(path) + 1))
    return any(node is not None and node.broken for node in nodes)


def _is_misspelt(root: Node, path: Path, problems: Mapping[Path, Problem]) -> bool:
    """Whether a missing key is there under a wrong name, which is told already."""
    if not path or find(root, path) is not None:
        return False
    parent = find(root, path[:-1])
    siblings = [(*path[:-1], step) for step, _ in _children(parent)] if parent else []
    hint = _did_you_mean(str(path[-1]))
    return any(sibling in problems and problems[sibling].fix == hint for sibling in siblings)


def _did_you_mean(key: str) -> str:
    return f"did you mean `{key}`?"


def _explain(root: Node, path: Path, kind: str) -> Problem:
    """The message for one error of pydantic at `path`."""
    node = find(root, path)
    if node is None:
        return _missing(root, path)
    if kind == "extra_forbidden":
        return _unknown_key(path, node)
    rule = schema_at(path)
    wanted = rule.get("patternErrorMessage", expected(rule))
    return Problem(_place(node), dotted(path), _describe(node, kind), _fix(node, rule, wanted))


def _missing(root: Node, path: Path) -> Problem:
    parent = find(root, path[:-1]) or root
    rule = schema_at(path)
    example = rule.get("const") or rule.get("examples", [""])[0]
    place = parent.key or parent.place
    return Problem(place, dotted(path), "is missing", f"add `{path[-1]}: {example}` ({rule['description']})")


def _unknown_key(path: Path, node: Node) -> Problem:
    known = list(schema_at(path[:-1]).get("properties", {}))
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    where = f"keys of `{dotted(path[:-1])}`" if path[:-1] else "keys of a job file"
    fix = _did_you_mean(close[0]) if close else f"{where}: {', '.join(known)}"
    return Problem(node.key or node.place, dotted(path), "there is no such key", fix)


def _beyond_the_schema(path: Path, node: Node) -> Problem | None:
    """What pydantic does not see: empty values, names of variables, words that YAML versions read apart."""
    if node.broken:
        return None
    if node.content is None:
        return Problem(_place(node), dotted(path), "has no value", _fill(schema_at(path)))
    if len(path) == 2 and path[0] == "env" and (trouble := env_name_problem(str(path[1]))):
        return Problem(node.key or node.place, dotted(path), trouble, f"allowed: {ENV_NAME_RULE}")
    if isinstance(node.content, str) and not usable(node.content):
        return Problem(node.place, dotted(path), UNUSABLE, "give text that is UTF-8")
    other = _YAML_1_1_WORDS.get(node.text.lower()) if node.plain else None
    if other and "string" in str(schema_at(path).get("type")):
        what = f"{node.text} without quotes is text in YAML 1.2 and {other} in YAML 1.1"
        return Problem(node.place, dotted(path), what, f'write "{node.text}" with quotes')
    return None


def _fill(rule: dict[str, Any]) -> str:
    return f"write {expected(rule)}{_such_as(rule)}, or remove the line"


def expected(rule: dict[str, Any]) -> str:
    """What a part of the schema asks for, in words."""
    if "const" in rule:
        return f"`{rule['const']}`"
    if "enum" in rule:
        return f"one of {', '.join(rule['enum'])}"
    words = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "array": "a list",
        "object": "a mapping of keys to values",
    }.get(str(rule.get("type")), "text")
    return (
        f"{words} from {_bare(rule['minimum'])} to {_bare(rule['maximum'])}" if "minimum" in rule else words
    )


def _such_as(rule: dict[str, Any]) -> str:
    example = rule.get("examples", [rule.get("default")])[0]
    simple = isinstance(example, (str, int, float)) and not isinstance(example, bool) and "enum" not in rule
    return f", such as {_bare(example)}" if simple else ""


def _bare(value: str | float) -> str:
    """Without the fraction of a number that has none."""
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


# How pydantic names what is wrong with a value of the right type.
_JUDGEMENTS = {
    "greater_than_equal": "is too small",
    "less_than_equal": "is too large",
    "finite_number": "is not a finite number",
    "int_type": "is not a whole number",
    "string_pattern_mismatch": "is not allowed",
    "string_unicode": "is not UTF-8",
    "literal_error": "is not allowed",
}


def _describe(node: Node, kind: str) -> str:
    """The value, and what is wrong with it: its type where that is wrong, else how pydantic judges it."""
    content = node.content
    if isinstance(content, dict):
        return "is a mapping of keys to values"
    if isinstance(content, list):
        return "is a list"
    if content is None:
        return "has no value"
    if isinstance(content, bool):
        return f"{node.text} is a truth value"
    if isinstance(content, str):
        judgement = _JUDGEMENTS.get(kind, "is text") if kind.startswith(("string", "literal")) else "is text"
        return f"{shown(content)} {judgement}" if content else "the text is empty"
    return f"{shown(node.text)[1:-1]} {_JUDGEMENTS.get(kind, 'is a number')}"


def _place(node: Node) -> Place:
    """Where to point: at the key when there is nothing after it."""
    return node.key or node.place if node.content is None else node.place


def _fix(node: Node, rule: dict[str, Any], wanted: str) -> str:
    """What to write instead: the very text where it can be guessed."""
    kind = rule.get("type")
    if node.content is None:
        return _fill(rule)
    if kind in ("integer", "number") and isinstance(node.content, str):
        return _fix_for_number(node, rule, wanted)
    if kind == "boolean" and isinstance(node.content, str):
        word = node.content.lower()
        meant = _YAML_1_1_WORDS.get(word, word if word in ("true", "false") else "")
        if meant:
            return f"write {meant}" + (
                " (YAML 1.2 has no other words for it)" if node.plain else " without quotes"
            )
    if "string" in str(kind) and not isinstance(node.content, (str, dict, list)) and "enum" not in rule:
        return f'write {wanted}; if this is meant, quote it: "{node.text}"'
    return f"write {wanted}{_such_as(rule)}"


def _fix_for_number(node: Node, rule: dict[str, Any], wanted: str) -> str:
    """What to write for text where a number belongs: `500 steps`, `"500"`, `1_000`, `010`."""
    found = _NUMBER_WITH_MORE.fullmatch(node.text.strip())
    digits = re.sub("[_,]", "", found[1]) if found else ""
    if (
        not digits
        or len(digits) > _LONGEST_SUGGESTION
        or not rule["minimum"] <= int(digits) <= rule["maximum"]
    ):
        return f"write {wanted}{_such_as(rule)}"
    if node.plain and digits == node.text:
        return f"write {int(digits)}: YAML 1.1 takes a number with a leading zero as octal"
    quoted = " without quotes" if not node.plain else ""
    return f"write {int(digits)}{quoted} ({wanted})"
