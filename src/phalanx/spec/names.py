"""Which names a job and its environment variables may have, and why. Pure."""

from __future__ import annotations

import re

# A DNS label that begins with a letter (RFC 1035), since it becomes part of names on Slurm and Kubernetes.
# A label has 63 characters; a run adds 21 (-YYYYmmdd-HHMMSS-xxxx), which leaves 42.
MAX_NAME = 40
JOB_NAME = rf"^[a-z]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?$"
JOB_NAME_RULE = (
    f"up to {MAX_NAME} lower-case letters, digits and dashes, beginning with a letter, no dash at the end"
)

# The agent sets these for each worker and round. ECMA 262 and Python read this pattern alike.
_OWNED = ("TF_CONFIG", "TF_GRPC_REUSE_PORT")
ENV_NAME = rf"^(?!PHALANX_|({'|'.join(_OWNED)})$)[A-Za-z_][A-Za-z0-9_]*$"
ENV_NAME_RULE = (
    f"letters, digits and underscores; not {', '.join(_OWNED)} or PHALANX_..., which the agent sets"
)

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def env_name_problem(name: str) -> str:
    """What is wrong with the name of an environment variable; empty when nothing is."""
    if name in _OWNED or name.startswith("PHALANX_"):
        return "is set by the agent for each worker"
    return "" if re.fullmatch(ENV_NAME, name) else "cannot be the name of an environment variable"


def is_function(entrypoint: str) -> bool:
    """Whether an entrypoint is `module:function` and no path."""
    return _FUNCTION.fullmatch(entrypoint) is not None


def job_name_from(stem: str) -> str:
    """A valid job name that resembles `stem`, the name of a script without its suffix."""
    words = re.sub(r"[^a-z0-9]+", "-", stem.lower()).lstrip("-0123456789")
    return words[:MAX_NAME].strip("-") or "job"
