"""`phalanx schema`: print the JSON schema of the job file, for editors."""

from __future__ import annotations


def schema() -> None:
    """Print the JSON schema of the job file.

    An editor that speaks YAML completes and checks job files with it: write it to a file, and put
    `# yaml-language-server: $schema=FILE` on the first line of the job file.
    """
    from phalanx.spec.schema import schema_text

    print(schema_text(), end="")
