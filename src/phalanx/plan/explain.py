"""Where every value of a plan came from. Pure; `phalanx plan --explain` prints the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from phalanx.plan.make import THREAD_VARIABLES, cpus_per_worker
from phalanx.plan.model import Plan
from phalanx.spec.job import LoadedJob


@dataclass(frozen=True)
class Row:
    """One value: its path in the job file's words, the value, and its origin."""

    path: str
    value: Any
    origin: str


def explain(job: LoadedJob, plan: Plan, *, cores: int) -> list[Row]:
    """One row a value, in the order of the job file; then what follows from them."""
    spec = job.spec
    values = _flat({**asdict(spec), "entrypoint": spec.entrypoint.target, "args": list(spec.args)})
    rows = [Row(path, values[path], origin) for path, origin in job.provenance.items()]
    cpus = cpus_per_worker(spec, cores=cores)
    from_cpus = "from workers.cpus"
    if spec.workers.cpus is None:
        count = spec.workers.count
        from_cpus = f"{cores} cores shared by {count} worker{'s' if count > 1 else ''}, {cpus} each"
    base = "directory of the job file" if job.source else "current directory"
    rows.append(Row("working_dir", spec.working_dir, base))
    rows += [
        Row(f"env.{name}", plan.workers[0].env[name], from_cpus)
        for name in THREAD_VARIABLES
        if name not in spec.env
    ]
    rows.append(Row("job_hash", plan.job_hash, "from entrypoint, args, env, batch, seed, precision, xla"))
    return rows


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested values by dotted path."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return flat
