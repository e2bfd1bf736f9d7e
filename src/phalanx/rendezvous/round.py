"""A round: one life of the gang. Members join under a lease, one forms the round, all read one document.

The round knows no particular store, and no rank is known to the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import asdict, dataclass

from phalanx.rendezvous.store import Store


@dataclass(frozen=True)
class Member:
    """One agent and what it brings to a round: `addresses` ("host:port") of the workers it will start."""

    name: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Round:
    """What every agent and worker of a round agrees on. Ranks go through the members in order."""

    number: int
    members: tuple[Member, ...]

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of all workers in the order of the ranks."""
        return tuple(address for member in self.members for address in member.addresses)

    @property
    def world_size(self) -> int:
        """Number of workers."""
        return len(self.addresses)

    @property
    def chief(self) -> str:
        """Address of rank 0."""
        return self.addresses[0]

    def to_json(self) -> str:
        """The document in the store."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Round:
        """Read back what `to_json` wrote."""
        raw = json.loads(text)
        members = tuple(Member(member["name"], tuple(member["addresses"])) for member in raw["members"])
        return cls(raw["number"], members)


def arrange(number: int, members: Iterable[Member]) -> Round:
    """The round of these members: ordered by name, so that whoever forms it forms the same. Pure."""
    return Round(number, tuple(sorted(members, key=lambda member: member.name)))


async def join(store: Store, number: int, member: Member, lease: int) -> None:
    """Register a member for a round; it goes away with the lease."""
    value = json.dumps(asdict(member), sort_keys=True)
    await store.write(f"rounds/{number:06d}/members/{member.name}", value, lease=lease)


async def form(store: Store, number: int, world_size: int) -> Round:
    """Wait until `world_size` workers have joined, and return the one document of the round.

    Every member may call this: whoever is first writes the document, all others read it. There is no deadline
    here; the caller bounds the wait.
    """
    prefix = f"rounds/{number:06d}/"
    while True:
        snapshot = await store.read(prefix)
        values = {entry.key: entry.value for entry in snapshot.entries}
        if document := values.get(prefix + "document"):
            return Round.from_json(document)
        joined = [json.loads(value) for key, value in values.items() if key.startswith(prefix + "members/")]
        candidate = arrange(number, (Member(raw["name"], tuple(raw["addresses"])) for raw in joined))
        if candidate.world_size == world_size:
            await store.write(prefix + "document", candidate.to_json(), expected_revision=0)
        else:
            async with aclosing(store.watch(prefix, snapshot.revision)) as changes:
                await anext(changes)
