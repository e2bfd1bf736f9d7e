"""A program under the bootstrap runs as under Python, and leaves with a code of the table and a report."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from phalanx.contract import AGENT_PID_ENV, ErrorReport, WorkerEnv, error_file


@dataclass
class Left:
    code: int
    out: str
    err: str
    report: ErrorReport | None


def boot(tmp_path: Path, *argv: str, env: dict[str, str] | None = None) -> Left:
    told = WorkerEnv(
        run_dir=str(tmp_path / "run"),
        job="job",
        job_hash="0",
        round=2,
        rank=1,
        world_size=2,
        local_rank=1,
        fence="",
        checkpoint_dir="",
        checkpoint_every_steps=1,
        checkpoint_keep=1,
        grace_s=1.0,
    )
    done = subprocess.run(
        [sys.executable, "-m", "phalanx.train.bootstrap", *argv],
        cwd=tmp_path,
        env={**os.environ, **told.to_env(), **(env or {})},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    report = error_file(tmp_path / "run", 2, 1)
    return Left(
        done.returncode, done.stdout, done.stderr, ErrorReport.read(report) if report.is_file() else None
    )


def script(tmp_path: Path, text: str, name: str = "program.py") -> str:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(path)


AS_PYTHON = """
import sys, os
import neighbour
print(__name__, os.path.basename(__file__), sys.argv[1:], sys.path[0] == os.path.dirname(__file__))
print(sys.modules["__main__"].__dict__ is globals(), os.getcwd() in sys.path)
"""


def test_a_script_finds_what_it_would_find_under_python(tmp_path: Path) -> None:
    script(tmp_path, "", "sub/neighbour.py")
    path = script(tmp_path, AS_PYTHON, "sub/program.py")
    left = boot(tmp_path, "script", path, "--lr", "-1")
    assert left.out == "__main__ program.py ['--lr', '-1'] True\nTrue False\n", left.err
    assert (left.code, left.err, left.report) == (0, "", None)
    plain = subprocess.run(
        [sys.executable, path, "--lr", "-1"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert plain.stdout == left.out


SPAWNS = """
import multiprocessing
def square(x):
    return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [3]))
"""


def test_a_script_may_spawn_processes_of_its_own(tmp_path: Path) -> None:
    left = boot(tmp_path, "script", script(tmp_path, SPAWNS))
    assert (left.code, left.out) == (0, "[9]\n"), left.err


LEAVES_WORK = """
import atexit, threading
atexit.register(print, "at exit")
threading.Timer(0.2, print, ["thread"]).start()
{use}
"""


@pytest.mark.parametrize("use", ["", "sys = __import__('sys'); sys.modules['phalanx.train.context'] = sys"])
def test_success_waits_for_threads_and_runs_exit_handlers(tmp_path: Path, use: str) -> None:
    """Also when phalanx.train was used, where the worker leaves by os._exit."""
    left = boot(tmp_path, "script", script(tmp_path, LEAVES_WORK.format(use=use)))
    assert (left.code, left.out) == (0, "thread\nat exit\n"), left.err


@pytest.mark.parametrize(
    ("argument", "code", "err"),
    [("", 0, ""), ("0", 0, ""), ("3", 3, ""), ("-1", 255, ""), ("'no luck'", 1, "no luck\n"), ("82", 82, "")],
)
def test_sys_exit_passes_through(tmp_path: Path, argument: str, code: int, err: str) -> None:
    left = boot(tmp_path, "script", script(tmp_path, f"import sys\nsys.exit({argument})"))
    assert (left.code, left.err, left.report) == (code, err, None)


def test_an_exception_is_printed_as_by_python_and_reported(tmp_path: Path) -> None:
    text = "print('before')\ndef work():\n    raise KeyError('age')\nwork()\n"
    path = script(tmp_path, text)
    left = boot(tmp_path, "script", path)
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert (left.code, left.out, left.err) == (plain.returncode, plain.stdout, plain.stderr)
    report = left.report
    assert report is not None
    assert (report.exit_code, report.exception, report.message) == (1, "builtins.KeyError", "'age'")
    assert (report.rank, report.round, report.section, report.step) == (1, 2, "setup", 0)
    assert report.traceback == tuple(plain.stderr.splitlines())


def test_a_syntax_error_shows_its_line(tmp_path: Path) -> None:
    left = boot(tmp_path, "script", script(tmp_path, "x = = 1\n"))
    assert left.code == 1
    assert "x = = 1" in left.err
    assert "bootstrap" not in left.err


def test_the_hook_of_the_program_is_called(tmp_path: Path) -> None:
    text = "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', error)\n1 / 0\n"
    left = boot(tmp_path, "script", script(tmp_path, text))
    assert (left.code, left.out) == (1, "hook division by zero\n")


def test_an_error_of_phalanx_is_a_message_without_a_traceback(tmp_path: Path) -> None:
    text = "from phalanx.errors import IncompatibleError\nraise IncompatibleError('cannot be', 'do this')\n"
    left = boot(tmp_path, "script", script(tmp_path, text))
    assert (left.code, left.err) == (93, "IncompatibleError: cannot be\n  hint: do this\n")
    assert left.report is not None
    assert (left.report.message, left.report.hint, left.report.traceback) == ("cannot be", "do this", ())


def test_a_function_is_called_without_arguments(tmp_path: Path) -> None:
    script(
        tmp_path, "import sys\nclass Job:\n    @staticmethod\n    def train(): print(sys.argv)\n", "jobs.py"
    )
    left = boot(tmp_path, "function", "jobs:Job.train", "--lr", "1")
    assert (left.code, left.out) == (0, "['jobs:Job.train', '--lr', '1']\n"), left.err


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("absent:train", "there is no module 'absent'"),
        ("jobs.absent:train", "there is no module 'jobs.absent'"),
        ("jobs:absent", "'jobs' has no 'absent'"),
    ],
)
def test_a_function_that_is_not_there_is_told(tmp_path: Path, target: str, words: str) -> None:
    script(tmp_path, "", "jobs.py")
    left = boot(tmp_path, "function", target)
    assert left.code == 2
    assert words in left.err
    assert "Traceback" not in left.err


def test_what_the_module_itself_cannot_import_is_its_own_error(tmp_path: Path) -> None:
    script(tmp_path, "import absent_library\n", "jobs.py")
    left = boot(tmp_path, "function", "jobs:train")
    assert left.code == 1
    assert left.err.endswith("ModuleNotFoundError: No module named 'absent_library'\n")


def test_a_worker_whose_agent_died_before_it_began_leaves(tmp_path: Path) -> None:
    left = boot(tmp_path, "script", script(tmp_path, "print('ran')"), env={AGENT_PID_ENV: "1"})
    assert (left.code, left.out) == (80, "")


def test_a_report_that_cannot_be_written_changes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    left = boot(tmp_path, "script", script(tmp_path, "raise ValueError('bad')"))
    assert left.code == 1
    assert left.err.splitlines()[-1] == "ValueError: bad"
    assert "the error report cannot be written" in left.err


def test_the_bootstrap_imports_no_tensorflow_and_no_numpy(tmp_path: Path) -> None:
    text = "import sys\nprint(sorted({'tensorflow', 'numpy', 'pydantic', 'phalanx.plan'} & set(sys.modules)))"
    assert boot(tmp_path, "script", script(tmp_path, text)).out == "[]\n"
