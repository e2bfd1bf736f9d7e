"""When the training loop logs, evaluates and saves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.schedule import Schedule

intervals = st.integers(0, 40)


@given(st.integers(1, 300), intervals, intervals, intervals, st.integers(1, 30), st.data())
def test_no_execution_runs_past_a_step_at_which_something_is_due(
    steps: int, log: int, validation: int, checkpoint: int, execution: int, data: st.DataObject
) -> None:
    schedule = Schedule(steps, log, validation, checkpoint, execution)
    step = start = data.draw(st.integers(0, steps - 1))
    reached = set()
    while step < steps:
        count = schedule.next_steps(step)
        assert 1 <= count <= execution
        step += count
        reached.add(step)
    assert step == steps
    for at in range(start + 1, steps + 1):
        if schedule.logs_at(at) or schedule.evaluates_at(at) or schedule.saves_at(at):
            assert at in reached


def test_what_is_due_when() -> None:
    schedule = Schedule(steps=25, log_every=10, validation_every=12, checkpoint_every=0)
    assert [step for step in range(1, 26) if schedule.logs_at(step)] == [10, 12, 20, 24, 25]
    assert [step for step in range(1, 26) if schedule.evaluates_at(step)] == [12, 24, 25]
    assert [step for step in range(1, 26) if schedule.saves_at(step)] == [25]


def test_without_validation_nothing_is_evaluated() -> None:
    schedule = Schedule(steps=4, log_every=0, validation_every=0, checkpoint_every=2)
    assert not any(schedule.evaluates_at(step) for step in range(1, 5))
    assert [step for step in range(1, 5) if schedule.logs_at(step)] == [4]
