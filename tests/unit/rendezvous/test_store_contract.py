"""What every store promises. A new store joins by a line in `STORES`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from phalanx.rendezvous.memory import MemoryStore
from phalanx.rendezvous.store import Change, Store


@dataclass
class Bench:
    """A store, and a way to let the time pass that its leases count."""

    store: Store
    let_pass: Callable[[float], Awaitable[None]]


def memory_bench() -> Bench:
    now = [0.0]

    async def let_pass(seconds: float) -> None:
        now[0] += seconds

    return Bench(MemoryStore(lambda: now[0]), let_pass)


STORES = {"memory": memory_bench}


@pytest.fixture(params=sorted(STORES))
def bench(request: pytest.FixtureRequest) -> Bench:
    return STORES[request.param]()


def check(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, 5)

    asyncio.run(bounded())


async def values(store: Store, prefix: str = "") -> dict[str, str]:
    return {entry.key: entry.value for entry in (await store.read(prefix)).entries}


async def changes(store: Store, prefix: str, after: int, count: int) -> list[Change]:
    seen: list[Change] = []
    async with aclosing(store.watch(prefix, after)) as stream:
        async for change in stream:
            seen.append(change)
            if len(seen) == count:
                break
    return seen


def test_reads_what_was_written_in_the_order_of_keys(bench: Bench) -> None:
    async def scenario() -> None:
        await bench.store.write("a/2", "two")
        await bench.store.write("a/1", "one")
        await bench.store.write("b", "other")
        snapshot = await bench.store.read("a/")
        assert [(entry.key, entry.value) for entry in snapshot.entries] == [("a/1", "one"), ("a/2", "two")]
        assert snapshot.entries[0].revision > snapshot.entries[1].revision
        assert snapshot.revision > snapshot.entries[0].revision

    check(scenario())


def test_an_absent_key_is_no_entry(bench: Bench) -> None:
    async def scenario() -> None:
        assert (await bench.store.read("a")).entries == ()

    check(scenario())


def test_a_write_with_an_old_revision_changes_nothing(bench: Bench) -> None:
    async def scenario() -> None:
        store = bench.store
        assert await store.write("key", "first", expected_revision=0)
        assert not await store.write("key", "second", expected_revision=0)
        revision = (await store.read("key")).entries[0].revision
        assert await store.write("key", "third", expected_revision=revision)
        assert not await store.write("key", "fourth", expected_revision=revision)
        assert await values(store) == {"key": "third"}

    check(scenario())


def test_of_many_who_compare_and_swap_one_wins_each_time(bench: Bench) -> None:
    async def add_one() -> None:
        while True:
            entries = (await bench.store.read("count")).entries
            value, revision = (int(entries[0].value), entries[0].revision) if entries else (0, 0)
            if await bench.store.write("count", str(value + 1), expected_revision=revision):
                return

    async def scenario() -> None:
        await asyncio.gather(*(add_one() for _ in range(20)))
        assert await values(bench.store) == {"count": "20"}

    check(scenario())


def test_entries_go_with_their_lease(bench: Bench) -> None:
    async def scenario() -> None:
        lease = await bench.store.grant(60)
        await bench.store.write("leased", "x", lease=lease)
        await bench.store.write("kept", "x")
        await bench.store.revoke(lease)
        assert await values(bench.store) == {"kept": "x"}
        await bench.store.revoke(lease)
        with pytest.raises(KeyError):
            await bench.store.write("late", "x", lease=lease)

    check(scenario())


def test_a_lease_ends_by_itself_and_not_before_its_time(bench: Bench) -> None:
    async def scenario() -> None:
        lease = await bench.store.grant(2)
        await bench.store.write("leased", "x", lease=lease)
        await bench.let_pass(1)
        assert await values(bench.store) == {"leased": "x"}
        await bench.let_pass(3)
        assert await values(bench.store) == {}

    check(scenario())


def test_an_entry_written_again_without_its_lease_stays(bench: Bench) -> None:
    async def scenario() -> None:
        lease = await bench.store.grant(60)
        await bench.store.write("key", "leased", lease=lease)
        await bench.store.write("key", "kept")
        await bench.store.revoke(lease)
        assert await values(bench.store) == {"key": "kept"}

    check(scenario())


def test_a_watch_shows_earlier_and_later_changes_in_order(bench: Bench) -> None:
    async def scenario() -> None:
        store = bench.store
        await store.write("a/1", "before")
        start = (await store.read("")).revision
        lease = await store.grant(60)
        await store.write("a/2", "missed", lease=lease)
        watching = asyncio.create_task(changes(store, "a/", start, 3))
        await asyncio.sleep(0)
        await store.write("b", "elsewhere")
        await store.write("a/1", "again")
        await store.revoke(lease)
        seen = await watching
        assert [(one.key, one.value) for one in seen] == [("a/2", "missed"), ("a/1", "again"), ("a/2", None)]
        assert [one.revision for one in seen] == sorted({one.revision for one in seen})

    check(scenario())


def test_a_waiting_watch_sees_a_lease_run_out() -> None:
    """Only for the store in memory: whoever waits is woken by the clock, not by a writer."""

    async def scenario() -> None:
        store = MemoryStore()
        await store.write("leased", "x", lease=await store.grant(0.05))
        assert [one.value for one in await changes(store, "leased", 1, 1)] == [None]

    check(scenario())
