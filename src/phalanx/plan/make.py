"""`JobSpec` -> `Plan`. Pure: the same input gives the same bytes; what the machine has is an argument."""

from __future__ import annotations

from phalanx.plan.model import Plan
from phalanx.spec.job import JobSpec


def make_plan(spec: JobSpec, *, cores: int) -> Plan:
    """Plan a job on one node with `cores` processor cores (len(os.sched_getaffinity(0)) on this machine)."""
    raise AssertionError("being written")
