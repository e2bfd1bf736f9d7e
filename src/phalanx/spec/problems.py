"""What is wrong with a file that the user wrote: one `Problem` each, shown with its place. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.errors import SpecError

_SHOWN_PROBLEMS = 20
_EXCERPT_COLUMNS = 96
_VALUE_CHARACTERS = 60


@dataclass(frozen=True)
class Place:
    """Where a value stands. `source` is a file or a part of the command line; lines and columns count from 1.

    `line` 0: the source has no lines. `excerpt` is that line's text, `width` how many columns to underline.
    """

    source: str
    line: int = 0
    column: int = 0
    excerpt: str = ""
    width: int = 1

    def __str__(self) -> str:
        """`job.yaml:12:7`, the form that editors and terminals follow."""
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source

    @property
    def origin(self) -> str:
        """`job.yaml:12`: where a value came from."""
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: `what` names the value, `fix` what is right; `path` is as `workers.count`."""

    place: Place
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        """The message, the source line with the value underlined, and the remedy."""
        path = f"{printable(self.path)}: " if self.path else ""
        head = f"{self.place}: {path}{self.what}"
        return "\n".join([head, *_excerpt(self.place), f"  {self.fix}"])


def spec_error(source: str, problems: Iterable[Problem]) -> SpecError:
    """One error for all problems, in the order of the file; twins are told once."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.place.line, problem.place.column))
    count = len(ordered)
    parts = [f"{source} has {count} problem{'s' if count > 1 else ''}"]
    parts += [str(problem) for problem in ordered[:_SHOWN_PROBLEMS]]
    if count > _SHOWN_PROBLEMS:
        parts.append(f"and {count - _SHOWN_PROBLEMS} more")
    return SpecError("\n\n".join(parts))


def printable(text: str) -> str:
    """`text` safe for a terminal: what is no visible character is written as an escape."""
    return "".join(
        character
        if character == " " or unicodedata.category(character)[0] not in "CZ"
        else _escape(character)
        for character in text
    )


def shown(text: str) -> str:
    """`text` in quotes, safe for a terminal, cut when long."""
    cut = text if len(text) <= _VALUE_CHARACTERS else text[: _VALUE_CHARACTERS - 3] + "..."
    return f'"{printable(cut)}"'


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _excerpt(place: Place) -> list[str]:
    """The source line and a caret line under it, cut to a window around the value."""
    if not place.line:
        return []
    before = place.column - 1
    start = max(0, min(before - _EXCERPT_COLUMNS // 2, len(place.excerpt) - _EXCERPT_COLUMNS))
    window = place.excerpt[start : start + _EXCERPT_COLUMNS].replace("\t", " ")
    left, value = printable(window[: before - start]), printable(window[before - start :])
    gutter = f"{place.line:>6} | "
    carets = "^" * max(1, min(place.width, len(value)))
    return [gutter + left + value, " " * (len(gutter) - 2) + "| " + " " * len(left) + carets]
