"""The command as a program: quick, and wrong command lines end with code 2 and a message."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx import __version__
from phalanx.cli.app import invoke
from phalanx.contract import ExitCode

HEAVY = ("tensorflow", "keras", "numpy", "pydantic", "ruamel", "rich", "yaml")
PHALANX = (sys.executable, "-c", "from phalanx.cli.app import main; main()")


def heavy_modules_after(code: str) -> list[str]:
    """Which heavy packages, and rooms of Phalanx, a new interpreter has loaded after `code`."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n" + (
        "import json; print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "phalanx" in loaded
    return [name for name in loaded if name.split(".")[0] in HEAVY or name.startswith("phalanx.train")]


def test_import_loads_nothing_heavy() -> None:
    assert heavy_modules_after("import phalanx") == []


def test_help_loads_nothing_heavy() -> None:
    assert (
        heavy_modules_after("sys.argv = ['phalanx', '--help']; from phalanx.cli.app import main; main()")
        == []
    )


def test_the_probe_sees_heavy_modules() -> None:
    assert "pydantic" in heavy_modules_after("import phalanx, pydantic")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--help"]) == ExitCode.SUCCESS
    printed = capsys.readouterr().out
    for command in ("run", "status", "list", "logs", "events", "cancel", "resume", "plan", "init", "schema"):
        assert f"\n  {command} " in printed


def test_without_arguments_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) in (ExitCode.USAGE, ExitCode.SUCCESS)  # the latter with Click before 8.2
    printed = capsys.readouterr()
    assert "Commands:" in printed.out + printed.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["--version"]) == ExitCode.SUCCESS
    assert capsys.readouterr().out == f"phalanx {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["plan"], "Missing argument"),
        (["plna"], "No such command"),
        (["plan", "--nothing", "job.yaml"], "No such option"),
        (["plan", "a.yaml", "b.yaml"], "unexpected extra argument"),
        (["plan", "none.yaml"], "there is no job file none.yaml"),
        (["run", "train.py", "-n", "many"], "Invalid value"),
        (["--nothing"], "No such option"),
        (["init"], "Missing argument"),
    ],
)
def test_wrong_command_line_ends_with_two_and_a_message(
    arguments: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert what in printed.err
    assert printed.out == ""
    assert len(printed.err.splitlines()) < 8


def test_a_reader_that_goes_away_ends_the_command_silently() -> None:
    process = subprocess.Popen([*PHALANX, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode < 0


def test_a_full_disk_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PHALANX, "schema"], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == ExitCode.INFRASTRUCTURE
    assert done.stderr == "phalanx: [Errno 28] No space left on device\n"


def test_a_deleted_current_directory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").touch()
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert invoke(["run", str(tmp_path / "train.py")]) == ExitCode.USAGE
    assert "the current directory was deleted\n  hint: cd to" in capsys.readouterr().err
