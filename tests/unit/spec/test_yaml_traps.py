"""Every trap of YAML and of files gives one message that names the place and the remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.errors import SpecError
from phalanx.spec.load import load_job
from phalanx.spec.source import MAX_BYTES

# (lines after the four of a valid job file, place, what the message says, what the remedy says)
TRAPS = {
    "tab": ("workers:\n\tcount: 2\n", "6:1", "a tab stands where", "with spaces"),
    "tab after key": ("workers: {count:\t2}\ntrain:\n  seed:\t1\n\t xla: true\n", "7:8", "a tab", "spaces"),
    "duplicate key": ("train: {seed: 1}\ntrain: {seed: 2}\n", "6:1", "twice (first on line 5)", "one"),
    "nested duplicate": ("train: {seed: 1, seed: 2}\n", "5:18", '"seed" appears twice', "keep one"),
    "anchor and alias": ("train: &t {seed: 1}\nworkers: *t\n", "5:8", "&t is an anchor", "repeat the value"),
    "bare star": ("args: [*.csv]\n", "5:8", "*.csv is an alias", "quote it"),
    "merge key": ("train:\n  <<: {seed: 1}\n", "6:3", "`<<` is a merge key", "repeat the value"),
    "tag": ("train: {seed: !!int 1}\n", "5:15", "!!int is a tag", "remove it"),
    "python tag": ("args: !!python/object/apply:os.system [ls]\n", "5:7", "is a tag", "remove it"),
    "second document": ("---\nname: other\n", "5:1", "a second document begins here", "one job"),
    "deep nesting": ("args: " + "[" * 5000 + "]" * 5000 + "\n", "5:23", "more than 16 levels", "3 levels"),
    "deep block nesting": ("".join(" " * n + "a:\n" for n in range(99)), "21:17", "more than 16", "3"),
    "open quote": ('args: ["a]\n', "5:8", "unexpected end of stream", "close the quotes"),
    "open bracket": ("args: [a, b\n", "5:7", "this is not YAML", "close the bracket"),
    "second colon": ("entry: a: b\n", "5:9", "mapping values are not allowed", "Quote the text"),
    "no space after colon": ("seed:1\n", "5:1", "could not find expected ':'", "space after the colon"),
    "uneven indentation": ("train:\n    seed: 1\n  xla: true\n", "7:3", "not YAML", "same indentation"),
    "reserved character": ("args: [@file]\n", "5:8", "cannot start any token", "in quotes"),
    "escape beyond Unicode": ('args: ["\\U00110000"]\n', "5:9", "this is not YAML", "yaml.org"),
    "NUL escape": ('env: {A: "a\\0"}\n', "5:10", "no program can be given", "remove the escape"),
    "surrogate escape": ('args: ["\\ud800"]\n', "5:8", "no program can be given", "remove the escape"),
    "list as key": ("? [a]\n: b\n", "5:3", "a key is a list", "one word"),
    "text for number": ("train: {steps: 500 steps}\n", "5:16", 'steps: "500 steps" is text', "write 500 ("),
    "quoted number": ('train: {steps: "500"}\n', "5:16", '"500" is text', "write 500 without quotes"),
    "underscores": ("train: {steps: 1_000}\n", "5:16", '"1_000" is text', "write 1000"),
    "thousands": ("train:\n  steps: 1,000\n", "6:10", '"1,000" is text', "write 1000"),
    "leading zero": ("train: {seed: 010}\n", "5:15", '"010" is text', "write 10: YAML 1.1"),
    "words": ("train: {steps: many}\n", "5:16", '"many" is text', "a whole number from 1 to"),
    "fraction": ("train: {steps: 2.5}\n", "5:16", "2.5 is not a whole number", "such as 1000"),
    "truth for number": ("train: {steps: true}\n", "5:16", "true is a truth value", "a whole number"),
    "negative": ("workers: {count: -2}\n", "5:18", "workers.count: -2 is too small", "from 1 to 1024"),
    "zero": ("workers: {count: 0}\n", "5:18", "0 is too small", "from 1 to 1024"),
    "too many": ("workers: {count: 1e9}\n", "5:18", "1e9 is too large", "from 1 to 1024"),
    "NaN": ("failure: {grace_s: .nan}\n", "5:20", ".nan is not a finite number", "from 0 to 86400"),
    "infinity": ("failure: {grace_s: -.inf}\n", "5:20", "-.inf is not a finite number", "from 0 to 86400"),
    "infinite count": ("train: {steps: .inf}\n", "5:16", ".inf is not a whole number", "from 1"),
    "overflow": ("failure: {grace_s: 1e999}\n", "5:20", "1e999 is not a finite number", "from 0"),
    "endless digits": (f"train: {{steps: {'9' * 5000}}}\n", "5:16", "is text", "a whole number from 1"),
    "yes for truth": ("train: {xla: yes}\n", "5:14", '"yes" is text', "write true (YAML 1.2"),
    "off for truth": ("train: {xla: off}\n", "5:14", '"off" is text', "write false"),
    "quoted truth": ('train: {xla: "true"}\n', "5:14", '"true" is text', "write true without quotes"),
    "one for truth": ("train: {xla: 1}\n", "5:14", "1 is a number", "true or false"),
    "yes for text": ("env: {DEBUG: yes}\n", "5:14", "text in YAML 1.2 and true in YAML 1.1", 'write "yes"'),
    "Norway": ("env: {COUNTRY: NO}\n", "5:16", "and false in YAML 1.1", 'write "NO" with quotes'),
    "truth for text": ("env: {DEBUG: true}\n", "5:14", "DEBUG: true is a truth value", 'quote it: "true"'),
    "number for path": ("checkpoint: {dir: 5}\n", "5:19", "5 is a number", 'quote it: "5"'),
    "empty value": ("train:\n  steps:\n", "6:3", "train.steps: has no value", "or remove the line"),
    "empty section": ("train:\n", "5:1", "train: has no value", "or remove the line"),
    "list for section": ("train: [1]\n", "5:8", "train: is a list", "a mapping of keys to values"),
    "text for section": ("train: fast\n", "5:8", '"fast" is text', "a mapping of keys to values"),
    "text for list": ("args: --fast\n", "5:7", '"--fast" is text', "a list"),
    "list in list": ("args: [[a]]\n", "5:8", "args[0]: is a list", "text"),
    "empty text": ('logs: {dir: ""}\n', "5:13", "logs.dir: the text is empty", "such as logs"),
}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_trap_gives_one_message_with_place_and_remedy(trap: str, message_of: Callable[..., str]) -> None:
    lines, place, what, fix = TRAPS[trap]
    message = message_of(lines)
    assert message.startswith("job.yaml has 1 problem\n\n"), message
    assert re.search(rf"^job\.yaml:{place}: ", message, re.MULTILINE), message
    head, remedy = message.split("\n")[2], message.rpartition("\n")[2]
    assert what in head
    assert fix in remedy


BYTES = {
    "empty": (b"", "is empty"),
    "white space": (b" \n\n", "is empty"),
    "comments": (b"# nothing\n", "nothing but comments"),
    "UTF-16": ("name: a".encode("utf-16"), "is UTF-16, not UTF-8"),
    "Latin-1": ("kind: A\nname: Kr\u00e4mer\n".encode("latin-1"), "job.yaml:2:9: the byte 0xe4"),
    "NUL byte": (b"name: a\x00b\n", "job.yaml:1:8: the control character U+0000"),
    "escape byte": (b"name: a\n# \x1b[31m\n", "job.yaml:2:3: the control character U+001B"),
    "large": (b"# comment\n" * (10 * 1024 * 1024 // 10), "is larger than 64 KiB"),
    "other version": (b"%YAML 1.1\n---\nname: a\n", "asks for another version"),
    "text": (b"hello\n", '"hello" is text'),
    "list": (b"- a\n", "is a list"),
    "gzip": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "0x8b is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BYTES)
def test_bytes_that_are_no_job_file(kind: str, tmp_path: Path) -> None:
    raw, what = BYTES[kind]
    path = tmp_path / "job.yaml"
    path.write_bytes(raw)
    with pytest.raises(SpecError) as caught:
        load_job(path)
    assert what in str(caught.value)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("args: [" + "--argument, " * ((MAX_BYTES - 10) // 12) + "]")
    with pytest.raises(SpecError, match="entrypoint: is missing"):
        load_job(path)


def test_byte_order_mark_and_windows_line_ends_are_accepted(directory: Path) -> None:
    path = directory / "job.yaml"
    text = "apiVersion: phalanx/v1\nkind: TrainingJob\nname: a\nentrypoint: train.py\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    job = load_job(path)
    assert job.spec.name == "a"
    assert job.provenance["entrypoint"].endswith("job.yaml:4")


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    expected = {
        tmp_path: "is a directory, not a job file",
        tmp_path / "jobs.yaml": "there is no job file",
        tmp_path / "none" / "job.yaml": "there is no job file",
        tmp_path / "pipe": "is not a regular file",
        tmp_path / "loop": "cannot be read: Too many levels",
        tmp_path / "dangling": "is a link to a file that does not exist",
        tmp_path / ("a" * 300): "cannot be read: File name too long",
    }
    for path, what in expected.items():
        with pytest.raises(SpecError) as caught:
            load_job(path)
        assert what in caught.value.message
        assert caught.value.hint
    with pytest.raises(SpecError, match=r"did you mean .*job\.yaml\?"):
        load_job(tmp_path / "jobs.yaml")
    with pytest.raises(SpecError, match=r"did you mean .*job\.yaml\?"):
        load_job(tmp_path)


def test_a_key_with_control_characters_is_shown_escaped(job_file: Callable[..., Path]) -> None:
    path = job_file()
    path.write_text(path.read_text() + '"\\e[31mred": 1\n')
    with pytest.raises(SpecError, match=r"\\x1b\[31mred: there is no such key"):
        load_job(path)


def test_a_script_given_as_job_file_names_the_command(directory: Path) -> None:
    with pytest.raises(SpecError, match=r"phalanx run .*train\.py -n 2"):
        load_job(directory / "train.py")


def test_an_unreadable_file(job_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = job_file()
    # Root reads everything, so the refusal is played.
    monkeypatch.setattr(
        Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    with pytest.raises(SpecError, match="cannot be read: Permission denied"):
        load_job(path)
