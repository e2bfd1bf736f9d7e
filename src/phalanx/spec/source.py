"""The bytes of a job file, read within bounds and decoded. Owns what can be wrong before YAML is read."""

from __future__ import annotations

import bisect
import difflib
import re
import stat
from pathlib import Path

from phalanx.errors import SpecError
from phalanx.spec.problems import Place, Problem, printable, spec_error

# A job file has some tens of lines. The bound keeps the pure-Python YAML scanner to about a second.
MAX_BYTES = 64 * 1024

# YAML 1.2.2 section 5.1 allows tab, line feed and carriage return; of C1 it allows NEL, which editors hide.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\ufffe\uffff]")
_LINE_BREAK = re.compile("\r\n|\n|\r")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_source(path: Path) -> str:
    """The text of the file at `path`, without a byte order mark. Raises SpecError."""
    name = printable(str(path))
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise SpecError(f"{name} is a directory, not a job file", _hint_for_directory(path))
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(f"{name} is not a regular file", "write the job to a file first")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise SpecError(
                f"the job file {name} is a link to a file that does not exist", "mend the link"
            ) from None
        raise SpecError(f"there is no job file {name}", _hint_for_missing(path)) from None
    except OSError as error:
        raise SpecError(
            f"the job file {name} cannot be read: {error.strerror}", "name a file that you can read"
        ) from error
    if len(raw) > MAX_BYTES:
        raise SpecError(
            f"{name} is larger than {MAX_BYTES // 1024} KiB, the limit for a job file",
            "is this the right file? Put long lists and data into files that the script reads",
        )
    return decode(raw, name)


def decode(raw: bytes, name: str) -> str:
    """`raw` as text. Raises SpecError for what is not UTF-8, holds control characters or nothing."""
    if raw.startswith(_UTF16):
        raise SpecError(f"{name} is UTF-16, not UTF-8", "save it as UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8-sig")
        what = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        raise spec_error(
            name, [Problem(Lines(good, name).place(len(good)), "", what, "save the file as UTF-8")]
        ) from None
    if bad := _FORBIDDEN.search(text):
        what = f"the control character U+{ord(bad.group()):04X} is not allowed"
        fix = 'delete it, or write it as an escape in double quotes, such as "\\x1b"'
        raise spec_error(name, [Problem(Lines(text, name).place(bad.start()), "", what, fix)])
    if not text.strip():
        raise SpecError(f"{name} is empty", "`phalanx init DIR` writes a job file to start from")
    return text


class Lines:
    """The lines of a text, to tell the place of a character; counts lines as editors do."""

    def __init__(self, text: str, source: str) -> None:
        breaks = list(_LINE_BREAK.finditer(text))
        self._source = source
        self._starts = [0, *(line_break.end() for line_break in breaks)]
        ends = [*(line_break.start() for line_break in breaks), len(text)]
        self._lines = [text[start:end] for start, end in zip(self._starts, ends, strict=True)]

    def place(self, index: int, width: int = 1) -> Place:
        """The place of character number `index`, which may be one past the end; `width` in characters."""
        line = bisect.bisect_right(self._starts, index) - 1
        return Place(self._source, line + 1, index - self._starts[line] + 1, self._lines[line], width)


def _hint_for_directory(path: Path) -> str:
    inside = path / "job.yaml"
    return f"did you mean {printable(str(inside))}?" if inside.is_file() else "name the job file"


def _hint_for_missing(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        names = []
    close = difflib.get_close_matches(path.name, names, n=1)
    if close:
        return f"did you mean {printable(str(path.parent / close[0]))}?"
    return "`phalanx init DIR` writes a job file to start from"
