"""Budgets kept in the store, so that they outlive any one agent: how many restarts a job has used."""

from __future__ import annotations

import json

from phalanx.rendezvous.store import Store


async def spend(store: Store, name: str, round_number: int) -> int:
    """Charge the failure of round `round_number` to the budget `name` and return how much is used now.

    Every agent of the round may charge it; it counts once.
    """
    key = f"budgets/{name}"
    while True:
        snapshot = await store.read(key)
        entry = next((entry for entry in snapshot.entries if entry.key == key), None)
        charged: list[int] = json.loads(entry.value) if entry else []
        if round_number in charged:
            return len(charged)
        charged.append(round_number)
        if await store.write(key, json.dumps(charged), expected_revision=entry.revision if entry else 0):
            return len(charged)
