"""The shape of the job file: pydantic models that check a document and give its JSON schema.

Only the launcher loads this. What a checked document means is `job.JobSpec`'s concern.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from phalanx.spec.names import ENV_NAME, ENV_NAME_RULE, JOB_NAME, JOB_NAME_RULE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_WORKERS = 1024
_DAY_S = 86_400

# A number is taken as it is written: `args: [--lr, 0.10]` passes "0.10".
Text = Annotated[str, WithJsonSchema({"type": ["string", "number"]})]
Directory = Annotated[str, StringConstraints(min_length=1)]
Steps = Annotated[int, Field(ge=1, le=10**12)]
WorkerCount = Annotated[int, Field(ge=1, le=MAX_WORKERS)]
# Left out. A `null` in the file never gets here: a key without a value is an error before.
Unset = SkipJsonSchema[None]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Workers(_Section):
    """The worker processes that train together."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependentRequired": {"min": ["max"], "max": ["min"]},
            "not": {"required": ["count", "min"]},
        }
    )

    count: WorkerCount | Unset = Field(
        None, description="Number of worker processes. Default 1.", examples=[2]
    )
    min: WorkerCount | Unset = Field(
        None, description="Fewest workers. For now it must equal max.", examples=[2]
    )
    max: WorkerCount | Unset = Field(
        None, description="Most workers. For now it must equal min.", examples=[2]
    )
    cpus: Annotated[int, Field(ge=1, le=4096)] | Unset = Field(
        None,
        description="Processor cores for each worker. Default: the cores of the machine, shared evenly.",
        examples=[4],
    )


class Train(_Section):
    """How to train. What is left out the script decides."""

    steps: Steps | Unset = Field(
        None, description="Last step of the job, counted over all restarts.", examples=[1000]
    )
    global_batch: Annotated[int, Field(ge=1, le=2**31 - 1)] | Unset = Field(
        None,
        description="Examples in a step, over all workers together; at least one for each worker.",
        examples=[64],
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | Unset = Field(  # NumPy's generators take 32 bits
        None,
        description="Seed of the order of examples and of all random numbers.",
        examples=[7],
    )
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32", description="Keras dtype policy: the numbers that layers compute with."
    )
    xla: bool = Field(False, description="Compile the forward and backward pass with XLA.")


class Checkpoint(_Section):
    """Where and when checkpoints are saved, and how many are kept."""

    dir: Directory | Unset = Field(
        None,
        description="Directory, relative to the job file. Default: `checkpoints` in the run directory.",
        examples=["checkpoints"],
    )
    every_steps: Steps = Field(500, description="Steps from one checkpoint to the next.")
    keep: int = Field(5, ge=1, le=100_000, description="Newest checkpoints to keep; older ones are deleted.")


class Failure(_Section):
    """When to restart and when to give up."""

    max_restarts: int = Field(
        10, ge=0, le=100_000, description="Rounds after the first one. 0: the first failure ends the job."
    )
    grace_s: float = Field(
        30.0,
        ge=0,
        le=_DAY_S,
        allow_inf_nan=False,
        description="Seconds from SIGTERM to SIGKILL, to save a checkpoint in.",
    )
    no_progress_rounds: int = Field(
        3, ge=1, le=100_000, description="Failed rounds in a row without a new step that end the job."
    )


class Logs(_Section):
    """What becomes of the workers' output."""

    dir: Directory | Unset = Field(
        None,
        description="Directory, relative to the job file. Default: `logs` in the run directory.",
        examples=["logs"],
    )
    tail_lines: int = Field(15, ge=0, le=1000, description="Last lines of a log that a failure shows.")


class JobFile(_Section):
    """One training job of Phalanx."""

    apiVersion: Literal["phalanx/v1"] = Field(description="Version of this file format.")  # noqa: N815  # its name
    kind: Literal["TrainingJob"] = Field(description="Kind of document.")
    name: Annotated[str, StringConstraints(pattern=JOB_NAME)] = Field(
        description=f"Name of the job, part of the names of its runs: {JOB_NAME_RULE}.",
        examples=["credit-risk"],
        json_schema_extra={"patternErrorMessage": JOB_NAME_RULE},
    )
    entrypoint: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="What each worker runs: a Python script, relative to the job file, or `module:function`.",
        examples=["train.py"],
    )
    args: list[Text] = Field(
        [], description="Arguments of the script (sys.argv).", examples=[["--lr", "0.1"]]
    )
    env: dict[str, Text] = Field(
        {},
        description="Environment variables of the workers.",
        examples=[{"DATA_DIR": "/data"}],
        json_schema_extra={"propertyNames": {"pattern": ENV_NAME, "patternErrorMessage": ENV_NAME_RULE}},
    )
    workers: Workers = Field(Workers(), description="The worker processes that train together.")
    train: Train = Field(Train(), description="How to train. What is left out the script decides.")
    checkpoint: Checkpoint = Field(Checkpoint(), description="Where and when checkpoints are saved.")
    failure: Failure = Field(Failure(), description="When to restart and when to give up.")
    logs: Logs = Field(Logs(), description="What becomes of the workers' output.")


@cache
def json_schema() -> dict[str, Any]:
    """The JSON schema of the job file, draft 2020-12. Treat it as read-only."""
    tidy: dict[str, Any] = _tidy(JobFile.model_json_schema())
    return {"$schema": DIALECT, "title": "Phalanx training job", **tidy}


def schema_text() -> str:
    """The JSON schema as `phalanx schema` prints it."""
    return json.dumps(json_schema(), indent=2) + "\n"


def schema_at(path: tuple[str | int, ...]) -> dict[str, Any]:
    """The part of the schema that rules the value at `path`; empty for a path that it does not know."""
    part = json_schema()
    for step in path:
        if isinstance(step, int):
            part = part.get("items", {})
        else:
            extra = part.get("additionalProperties")
            part = part.get("properties", {}).get(step, extra if isinstance(extra, dict) else {})
        if "$ref" in part:
            part = json_schema()["$defs"][part["$ref"].rpartition("/")[2]]
    return part


def _tidy(schema: Any) -> Any:
    """Without pydantic's titles (they repeat the key), defaults of sections, and unions of one."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    for union in ("anyOf", "allOf"):  # of one: how pydantic writes an optional value, and until 2.9 a section
        if len(kept.get(union, ())) == 1:
            kept |= {**kept.pop(union)[0], **kept}
    if "$ref" in kept or kept.get("default", 0) is None:
        kept.pop("default", None)
    return {key: _tidy(value) for key, value in kept.items()}
