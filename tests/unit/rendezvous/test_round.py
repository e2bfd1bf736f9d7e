"""Members of any order form one round, and everybody reads the same document."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from phalanx.rendezvous.budget import spend
from phalanx.rendezvous.memory import MemoryStore
from phalanx.rendezvous.round import Member, Round, arrange, form, join

A = Member("node-a", ("10.0.0.1:1", "10.0.0.1:2"))
B = Member("node-b", ("10.0.0.2:1",))
C = Member("node-c", ("10.0.0.3:1", "10.0.0.3:2"))


@pytest.mark.parametrize("order", list(itertools.permutations([A, B, C])))
def test_the_order_of_joining_does_not_matter(order: tuple[Member, ...]) -> None:
    formed = arrange(4, order)
    assert formed.addresses == ("10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.3:2")
    assert (formed.number, formed.world_size, formed.chief) == (4, 5, "10.0.0.1:1")
    assert Round.from_json(formed.to_json()) == formed


def test_all_members_wait_for_the_last_and_read_the_same() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        lease = await store.grant(60)
        await join(store, 1, A, lease)
        waiting = [asyncio.create_task(form(store, 1, 5)) for _ in range(2)]
        await join(store, 1, B, lease)
        assert not any(task.done() for task in waiting)
        await join(store, 1, C, lease)
        rounds = await asyncio.wait_for(asyncio.gather(*waiting, form(store, 1, 5)), 5)
        assert rounds == [arrange(1, [A, B, C])] * 3

    asyncio.run(scenario())


def test_a_member_whose_lease_ended_is_not_waited_with() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        gone, here = await store.grant(60), await store.grant(60)
        await join(store, 1, A, gone)
        await store.revoke(gone)
        await join(store, 1, B, here)
        waiting = asyncio.create_task(form(store, 1, 3))
        await join(store, 1, C, here)
        assert (await asyncio.wait_for(waiting, 5)).members == (B, C)

    asyncio.run(scenario())


def test_a_failed_round_is_charged_once_whoever_charges_it() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        used = await asyncio.gather(*(spend(store, "restarts", 1) for _ in range(3)))
        assert used == [1, 1, 1]
        assert await spend(store, "restarts", 2) == 2
        assert await spend(store, "others", 2) == 1

    asyncio.run(scenario())
