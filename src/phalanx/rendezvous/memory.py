"""A store in the memory of one agent, and the fake of every store in tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from phalanx.rendezvous.store import Change, Entry, Snapshot


@dataclass
class _Lease:
    ends_s: float
    keys: set[str] = field(default_factory=set)


class MemoryStore:
    """Keeps everything in dictionaries. A lease whose time has passed ends when somebody looks or watches.

    `clock` gives monotonic seconds; tests pass their own.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._granted = 0
        self._leases: dict[int, _Lease] = {}
        self._lease_of: dict[str, int] = {}
        self._history: list[Change] = []
        self._changed = asyncio.Condition()

    async def read(self, prefix: str) -> Snapshot:
        """See `Store.read`."""
        await self._expire()
        found = sorted(key for key in self._entries if key.startswith(prefix))
        return Snapshot(len(self._history), tuple(self._entries[key] for key in found))

    async def write(
        self, key: str, value: str, *, expected_revision: int | None = None, lease: int | None = None
    ) -> bool:
        """See `Store.write`."""
        await self._expire()
        if lease is not None and lease not in self._leases:
            raise KeyError(f"lease {lease} is gone")
        present = self._entries.get(key)
        if expected_revision is not None and expected_revision != (present.revision if present else 0):
            return False
        self._detach(key)
        if lease is not None:
            self._leases[lease].keys.add(key)
            self._lease_of[key] = lease
        await self._record(key, value)
        return True

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        """See `Store.watch`."""
        seen = after_revision
        while True:
            await self._expire()
            for change in self._history[seen:]:
                seen = change.revision
                if change.key.startswith(prefix):
                    yield change
            async with self._changed:
                if len(self._history) == seen:
                    await self._wait_for_change()

    async def grant(self, ttl_s: float) -> int:
        """See `Store.grant`."""
        self._granted += 1
        self._leases[self._granted] = _Lease(self._clock() + ttl_s)
        return self._granted

    async def revoke(self, lease: int) -> None:
        """See `Store.revoke`."""
        held = self._leases.pop(lease, None)
        for key in sorted(held.keys if held else ()):
            self._lease_of.pop(key, None)
            await self._record(key, None)

    async def _expire(self) -> None:
        now = self._clock()
        for lease in [number for number, held in self._leases.items() if held.ends_s <= now]:
            await self.revoke(lease)

    def _detach(self, key: str) -> None:
        lease = self._lease_of.pop(key, None)
        if lease is not None and lease in self._leases:
            self._leases[lease].keys.discard(key)

    async def _record(self, key: str, value: str | None) -> None:
        revision = len(self._history) + 1
        if value is None:
            del self._entries[key]
        else:
            self._entries[key] = Entry(key, value, revision)
        self._history.append(Change(key, value, revision))
        async with self._changed:
            self._changed.notify_all()

    async def _wait_for_change(self) -> None:
        """Wait until something is written or the next lease ends, whichever is first."""
        ends_s = min((held.ends_s for held in self._leases.values()), default=None)
        timeout_s = None if ends_s is None else max(0.0, ends_s - self._clock())
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except asyncio.TimeoutError:
            return
