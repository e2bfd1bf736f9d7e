"""`phalanx plan`: show what would run, without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from phalanx.backends.base import ProcessSpec, Submission
    from phalanx.plan.model import Plan
    from phalanx.spec.load import LoadedJob

Overrides = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a value of the job file, e.g. train.steps=200. Repeatable; the last one wins.",
    ),
]


def plan(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The job file.")],
    overrides: Overrides = [],  # noqa: B006  # Typer's way; it is never changed
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every value and where it came from.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the processes that would be started.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what would run, without running it.

    With neither --explain nor --dry-run, --json prints the plan as `phalanx run` stores it.
    """
    import os

    from phalanx.plan.make import make_plan
    from phalanx.spec.load import load_job

    cores = len(os.sched_getaffinity(0))
    loaded = load_job(job, overrides)
    made = make_plan(loaded.spec, cores=cores)
    parts: dict[str, Any] = {}
    if explain:
        parts["explain"] = _explain(loaded, made, cores, as_json)
    if dry_run:
        parts["submission"] = _submission(made, as_json)
    if as_json:
        print(json.dumps(parts, indent=2) if parts else made.to_json(), end="\n" if parts else "")
        return
    if not parts:
        print(_summary(made))
    print("\n\n".join(parts.values()), end="\n" if parts else "")


def _summary(plan: Plan) -> str:
    entry = plan.entrypoint
    rows = {
        "job": plan.job,
        "runs": " ".join([entry.target, *entry.args]),
        "in": plan.working_dir,
        "workers": f"{plan.world_size}, each with {_threads(plan)}",
        "train": _training(plan),
        "checkpoints": f"every {plan.checkpoint.every_steps} steps, newest {plan.checkpoint.keep} kept in "
        f"{plan.checkpoint.dir or 'the run directory'}",
        "failures": f"up to {plan.failure.max_restarts} restarts, {plan.failure.no_progress_rounds} without "
        f"progress, {plan.failure.grace_s:g} s of grace",
        "logs": plan.logs.dir or "in the run directory",
        "hash": plan.job_hash,
    }
    lines = [f"{name:<12} {value}" for name, value in rows.items()]
    return "\n".join([*lines, "", "--explain shows where each value came from, --dry-run the processes"])


def _threads(plan: Plan) -> str:
    threads = plan.workers[0].env["TF_NUM_INTRAOP_THREADS"]
    return f"{threads} thread{'' if threads == '1' else 's'}"


def _training(plan: Plan) -> str:
    train = plan.train
    numbers = {"steps": train.steps, "global batch": train.global_batch, "seed": train.seed}
    said = [f"{name} {value}" for name, value in numbers.items() if value is not None]
    silent = [name for name, value in numbers.items() if value is None]
    by_script = [f"{', '.join(silent)} by the script"] if silent else []
    return ", ".join([*said, train.precision, *(["XLA"] if train.xla else []), *by_script])


def _explain(loaded: LoadedJob, plan: Plan, cores: int, as_json: bool) -> Any:
    from dataclasses import asdict

    from phalanx.plan.explain import explain

    rows = explain(loaded, plan, cores=cores)
    if as_json:
        return [asdict(row) for row in rows]
    cells = [(row.path, _shown(row.value), row.origin) for row in rows]
    widths = [max(len(cell[column]) for cell in cells) for column in (0, 1)]
    return "\n".join(
        f"{path:<{widths[0]}}  {value:<{min(widths[1], 48)}}  {origin}" for path, value, origin in cells
    )


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def _submission(plan: Plan, as_json: bool) -> Any:
    from dataclasses import asdict

    from phalanx.backends.local import LocalBackend
    from phalanx.cli.runs import runs_dir

    submission = LocalBackend().render(plan, runs_dir() / f"{plan.job}-<time>")
    return asdict(submission) if as_json else _processes(submission)


def _processes(submission: Submission) -> str:
    """The processes as a person would start them from a shell."""
    head = [f"# backend {submission.backend}, run directory {submission.run_dir}"]
    started = [*submission.agents, *submission.workers]
    return "\n\n".join([*head, *(_process(process) for process in started)])


def _process(process: ProcessSpec) -> str:
    import shlex

    env = [f"  {name}={shlex.quote(value)} \\" for name, value in sorted(process.env.items())]
    return "\n".join(
        [
            f"# {process.name}",
            f"cd {shlex.quote(process.cwd)}",
            "env \\",
            *env,
            f"  {shlex.join(process.argv)}",
        ]
    )
