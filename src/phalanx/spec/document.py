"""YAML text -> a tree of nodes that know their places. YAML 1.2, without what a job file has no use for.

Owns the language: what counts as a number, and that aliases, tags, duplicate keys and several documents are
errors. Knows no field of the job file. ruamel.yaml scans and parses; values are made here, so that every
reading of a word is decided in one place (the core schema of YAML 1.2.2, section 10.3).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from phalanx.spec.problems import Place, Problem, printable, shown
from phalanx.spec.source import Lines

Scalar = str | int | float | bool | None

MAX_DEPTH = 16  # the deepest job file has 3 levels

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
# Larger numbers lose digits in JSON and in a double.
_EXACT = 2**53
_LONGEST_NUMBER = 100
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_LONG_ESCAPE = re.compile(r"\\U([0-9a-fA-F]{8})")
UNUSABLE = "the text holds a character that no program can be given"
_NO_ALIASES = "a job file has no anchors, aliases and merge keys: repeat the value"

_FIXES = (
    ("cannot start any token", "put the text in quotes"),
    (
        "mapping values are not allowed",
        'is there a second ": " in the line, or wrong indentation? Quote the text',
    ),
    ("could not find expected ':'", "write `key: value`, with a space after the colon"),
    ("unexpected end of stream", "close the quotes"),
    ("but got '<stream end>'", "close the bracket"),
    ("found '<stream end>'", "close the bracket"),
    ("expected <block end>", "give all keys of a section, or all items of a list, the same indentation"),
)


@dataclass
class Node:
    """One value and its place. `content` is a scalar, or children by key or in order.

    `text` is a scalar as written, without its quotes; `plain` says that it had none. `key` is the place of
    the key that leads here. `broken`: a problem with it was told; nothing more is to be said.
    """

    content: Scalar | dict[str, Node] | list[Node]
    place: Place
    text: str = ""
    plain: bool = False
    key: Place | None = None
    broken: bool = False


@dataclass
class Document:
    """What was read: `root` None when nothing could be, or not all of it."""

    root: Node | None
    problems: list[Problem] = field(default_factory=list)


class _StopError(Exception):
    """Nothing more can be read; the problem is noted."""


def parse(text: str, source: str) -> Document:
    """Read `text` as one YAML document; `source` names it in messages. Raises nothing: see `problems`."""
    # Imported here: only a launcher that reads a file pays for it.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    builder = _Builder(text, source, iter(YAML(typ="safe", pure=True).parse(text)))
    try:
        return Document(builder.whole(), builder.problems)
    except _StopError:
        pass
    except MarkedYAMLError as error:
        # What is never closed, and a key without its colon, are found later than where they begin.
        is_open = error.context_mark and any(words in (error.problem or "") for words in ("stream", "':'"))
        mark = error.context_mark if is_open else error.problem_mark or error.context_mark
        builder.syntax(mark.index if mark else 0, error.problem or "")
    except (YAMLError, ValueError, OverflowError) as error:  # also from chr(), for an escape beyond Unicode
        escape = next((e for e in _LONG_ESCAPE.finditer(text) if int(e[1], 16) > sys.maxunicode), None)
        builder.syntax(escape.start() if escape else 0, str(error).split("\n")[0])
    return Document(None, builder.problems)


class _Builder:
    """Builds the tree from the parser's events, noting problems as it goes."""

    def __init__(self, text: str, source: str, events: Iterator[Any]) -> None:
        self.problems: list[Problem] = []
        self._text = text
        self._lines = Lines(text, source)
        self._events = events
        self._anchors: set[str] = set()

    def whole(self) -> Node | None:
        """The one document of the stream; None when there is none."""
        next(self._events)  # the start of the stream
        start = next(self._events)
        if type(start).__name__ != "DocumentStartEvent":
            self._note(self._place(start), "there is nothing but comments", "write at least one key")
            return None
        if start.version not in (None, (1, 2)):
            self._note(
                self._lines.place(0),
                "the %YAML directive asks for another version",
                "remove it: a job file is YAML 1.2",
            )
        root = self._node(next(self._events), 0)
        next(self._events)  # the end of the document
        more = next(self._events)
        if type(more).__name__ == "DocumentStartEvent":
            self._note(
                self._place(more),
                "a second document begins here",
                "one file holds one job: remove the `---` line and what follows",
            )
        return root

    def syntax(self, index: int, problem: str) -> None:
        """Note that the text is no YAML at character `index`."""
        place = self._lines.place(min(index, len(self._text)))
        if "\t" in place.excerpt[: place.column] and "any token" in problem:
            self._note(place, "a tab stands where only spaces are allowed", "indent and separate with spaces")
            return
        fix = next((fix for words, fix in _FIXES if words in problem), "see https://yaml.org/spec/1.2.2")
        self._note(place, f"this is not YAML: {printable(problem)}", fix)

    def _note(self, place: Place, what: str, fix: str) -> None:
        self.problems.append(Problem(place, "", what, fix))

    def _place(self, event: Any) -> Place:
        start, end = event.start_mark.index, event.end_mark.index
        return self._lines.place(start, max(1, end - start))

    def _word(self, event: Any) -> str:
        """What the source says where the event begins, up to the next space: an anchor or a tag."""
        rest = self._text[event.start_mark.index :].split(None, 1)
        return printable(rest[0][:40].rstrip(",]}"))

    def _node(self, event: Any, depth: int) -> Node:
        kind = type(event).__name__
        place = self._place(event)
        if depth > MAX_DEPTH:
            self._note(place, f"more than {MAX_DEPTH} levels of nesting", "a job file needs 3 levels")
            raise _StopError
        if kind == "AliasEvent":
            if event.anchor not in self._anchors:
                self._note(
                    place, f"{self._word(event)} is an alias", f"{_NO_ALIASES}, or quote it if it is text"
                )
            return Node(None, place, broken=True)
        broken = self._has_properties(event, place)
        if kind == "MappingStartEvent":
            return Node(self._mapping(depth), place, broken=broken)
        if kind == "SequenceStartEvent":
            return Node(self._sequence(depth), place, broken=broken)
        plain = event.style is None
        if not usable(event.value):
            self._note(place, UNUSABLE, "remove the escape")
            broken = True
        content = resolve(event.value) if plain else event.value
        return Node(content, place, event.value, plain, broken=broken)

    def _has_properties(self, event: Any, place: Place) -> bool:
        """Whether the node has an anchor or a tag; both are problems."""
        if event.anchor is not None:
            self._anchors.add(event.anchor)
            self._note(place, f"{self._word(event)} is an anchor", _NO_ALIASES)
        elif event.tag is not None:
            self._note(
                place, f"{self._word(event)} is a tag", "remove it: the key says what type its value has"
            )
        else:
            return False
        return True

    def _sequence(self, depth: int) -> list[Node]:
        items = []
        while type(event := next(self._events)).__name__ != "SequenceEndEvent":
            items.append(self._node(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            value.key = key.place
            if isinstance(key.content, (dict, list)):
                self._note(key.place, "a key is a list or a mapping", "a key is one word")
            elif key.plain and key.text == "<<":
                self._note(key.place, "`<<` is a merge key, which YAML 1.2 does not have", _NO_ALIASES)
            elif key.broken:
                pass
            elif key.text in children:
                first = children[key.text].key
                told = f" (first on line {first.line})" if first and first.line else ""
                self._note(key.place, f"the key {shown(key.text)} appears twice{told}", "keep one of them")
            else:
                children[key.text] = value
        return children


def usable(text: str) -> bool:
    """Whether `text` can be an argument, a path or the value of a variable: UTF-8 without NUL."""
    return not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in text)


def resolve(text: str) -> Scalar:
    """The value of a plain scalar by the core schema, with three decisions.

    A number without a fraction is a whole number however it is written (`500.0`, `1e3`), as in JSON Schema.
    `010` stays text: it is 8 to YAML 1.1 and 10 to YAML 1.2. `1_000` is text, as in YAML 1.2.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_NUMBER or _LEADING_ZERO.fullmatch(text):
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _INFINITY.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    if _FLOAT.fullmatch(text):
        value = float(text)
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    return text
