"""What can be seen to be wrong before anything is started: one clear message instead of N failing workers.

The checkpoint directory is tried when the first round takes its fence.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from phalanx.errors import InfrastructureError, UsageError
from phalanx.plan.model import Plan
from phalanx.plan.worker import worker_log


def check_entrypoint(plan: Plan) -> None:
    """Raise UsageError when the working directory or the script is not there."""
    if not Path(plan.working_dir).is_dir():
        raise UsageError(f"the working directory {plan.working_dir} does not exist")
    if plan.entrypoint.kind == "script" and not Path(plan.entrypoint.target).is_file():
        raise UsageError(
            f"the script {plan.entrypoint.target} does not exist",
            "entrypoint names a file, as an absolute path or relative to the job file",
        )


def check_logs(plan: Plan, run_dir: Path) -> None:
    """Raise InfrastructureError when the directory of the workers' logs cannot be written."""
    directory = worker_log(plan, run_dir, 1, 0).parent.parent
    probe = directory / f".probe-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with probe.open("wb") as file:
                file.write(b"\0" * 4096)
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise InfrastructureError(
            f"the log directory {directory} cannot be written: {error.strerror}",
            "name another directory under logs.dir, or free space there",
        ) from error
