"""The seam to where agents meet: keys with revisions, leases, and watching. Shaped after etcd v3.

A store knows keys and values. It must not know what a rank, a round or a budget is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Entry:
    """A value under a key; `revision` is the store's revision of the last write to it, from 1."""

    key: str
    value: str
    revision: int


@dataclass(frozen=True)
class Snapshot:
    """Entries by key, as they stood together at `revision` of the store."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Change:
    """One write (`value` set) or removal (`value` None) of a key, at a revision of the store."""

    key: str
    value: str | None
    revision: int


class Store(Protocol):
    """Linearizable keys and values. Every write raises the store's revision by one."""

    async def read(self, prefix: str) -> Snapshot:
        """All entries whose key starts with `prefix`, ordered by key."""

    async def write(
        self, key: str, value: str, *, expected_revision: int | None = None, lease: int | None = None
    ) -> bool:
        """Put a value and say whether it was put.

        With `expected_revision` only if the entry still has that revision (0: only if there is none).
        With `lease` the entry goes away with the lease. Raises KeyError for a lease that is gone.
        """

    def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        """Every change under `prefix` with a revision above `after_revision`, in order, without end."""

    async def grant(self, ttl_s: float) -> int:
        """A new lease that ends after `ttl_s` seconds, or later."""

    async def revoke(self, lease: int) -> None:
        """End a lease and remove its entries; nothing happens when it is gone."""
