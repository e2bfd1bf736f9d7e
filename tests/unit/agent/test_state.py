"""The state machine, move by move."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.agent import state as machine
from phalanx.agent.policy import Exit, Progress
from phalanx.agent.state import (
    KILL_WAIT_S,
    ROOT_CAUSE_WAIT_S,
    Command,
    DeadlinePassed,
    Event,
    Join,
    Kill,
    Leave,
    Phase,
    ProcessExited,
    ProgressSeen,
    Record,
    Release,
    RoundFailed,
    RoundFormed,
    Start,
    State,
    Stop,
    StopRequested,
)
from phalanx.events.kinds import Kind
from phalanx.plan.model import FailurePlan
from phalanx.rendezvous.round import Member, Round

LIMITS = FailurePlan(max_restarts=2, grace_s=5.0, no_progress_rounds=3)


class Walk:
    """Feeds events to the machine and keeps what it said last."""

    def __init__(self, limits: FailurePlan = LIMITS, world_size: int = 3) -> None:
        self.world_size = world_size
        self.used = 0
        self.state: State
        self.state, self.said = machine.begin(limits, 1, 0.0)

    def on(self, event: Event) -> Walk:
        self.state, self.said = machine.step(self.state, event)
        return self

    def formed(self, at_s: float = 0.0) -> Walk:
        addresses = tuple(f"h:{rank}" for rank in range(self.world_size))
        self.used = max(0, self.state.round_number - 1)
        return self.on(
            RoundFormed(at_s, Round(self.state.round_number, (Member("n", addresses),)), self.used)
        )

    def exited(self, rank: int, code: int, at_s: float = 1.0, **known: Any) -> Walk:
        return self.on(ProcessExited(at_s, Exit(rank, code, at_s, **known)))

    def records(self, kind: Kind) -> list[Record]:
        return [one for one in self.said if isinstance(one, Record) and one.kind is kind]

    @property
    def moves(self) -> list[Command]:
        return [one for one in self.said if not isinstance(one, Record)]


def outcome(walk: Walk) -> tuple[str, int]:
    (finished,) = walk.records(Kind.RUN_FINISHED)
    assert walk.moves[-1] == Leave(finished.data["exit_code"])
    return finished.data["state"], finished.data["exit_code"]


def test_all_ranks_leave_with_0() -> None:
    walk = Walk(world_size=2)
    assert walk.said == (Join(1),)
    assert walk.formed().moves == [Start()]
    assert walk.exited(0, 0).moves == []
    walk.exited(1, 0, 2.0)
    assert walk.moves == [Release(), Leave(0)]
    assert walk.records(Kind.ROUND_ENDED)[0].data["cause"] == "finished"
    assert outcome(walk) == ("succeeded", 0)


def test_one_failed_rank_ends_the_round_for_all_and_a_new_round_follows() -> None:
    walk = Walk().formed()
    assert walk.exited(1, 137).moves == [Kill()]
    assert walk.state.phase is Phase.ENDING
    assert walk.exited(0, 137, after_kill=True).moves == []
    assert walk.exited(2, 137, 1.5, after_kill=True).moves == [Release()]
    (ended,) = walk.records(Kind.ROUND_ENDED)
    assert (ended.round, ended.rank, ended.data["cause"]) == (1, 1, "killed")
    (restarting,) = walk.records(Kind.RESTARTING)
    assert (restarting.data["restarts_used"], restarting.data["restarts_left"]) == (1, 1)
    assert walk.state.deadline_s == 1.5 + restarting.data["delay_s"]
    assert walk.on(DeadlinePassed(9.0)).moves == [Join(2, after_failure_of=1)]
    assert walk.formed(10.0).records(Kind.ROUND_STARTED)[0].round == 2


def test_after_progress_the_next_round_is_not_delayed() -> None:
    walk = Walk(world_size=1).formed()
    walk.on(ProgressSeen(0.5, 0, Progress("step", 7, 0, 10, True)))
    walk.exited(0, 137, progress=Progress("step", 7, 0, 10, True))
    assert walk.state.deadline_s == 1.0


def test_fallout_waits_for_its_root_cause() -> None:
    walk = Walk().formed()
    assert walk.exited(0, 80).moves == []
    assert walk.state.phase is Phase.JUDGING
    assert walk.state.deadline_s == 1.0 + ROOT_CAUSE_WAIT_S
    assert walk.exited(2, 80, 1.1).moves == []
    assert walk.state.deadline_s == 1.0 + ROOT_CAUSE_WAIT_S
    walk.exited(1, 1, 1.2)
    (ended,) = walk.records(Kind.ROUND_ENDED)
    assert (ended.rank, ended.data["cause"]) == (1, "user_error")


def test_fallout_without_a_root_cause_ends_the_round_too() -> None:
    walk = Walk().formed().exited(0, 80)
    assert walk.on(DeadlinePassed(2.9)).moves == []
    assert walk.on(DeadlinePassed(3.0)).moves == [Kill()]
    walk.exited(1, 137, 3.1, after_kill=True).exited(2, 137, 3.1, after_kill=True)
    assert walk.records(Kind.ROUND_ENDED)[0].data["cause"] == "peer_lost"


def test_a_rank_that_leaves_its_peers_with_work_undone_is_the_cause() -> None:
    walk = Walk(world_size=2).formed()
    assert walk.exited(0, 0, progress=Progress("step", 3, 0, 10, True)).moves == [Kill()]
    walk.exited(1, 137, after_kill=True)
    (ended,) = walk.records(Kind.ROUND_ENDED)
    assert (ended.rank, ended.data["cause"], ended.data["exit_code"]) == (0, "early_exit", 1)


def fail_once(walk: Walk, code: int = 137) -> Walk:
    walk.formed()
    for rank in range(walk.world_size):
        walk.exited(rank, code, 1.0)
    return walk


def test_the_budget_ends_the_run_with_the_code_of_the_last_root_cause() -> None:
    walk = Walk(world_size=1)
    for _ in range(2):
        fail_once(walk).on(DeadlinePassed(99.0))
    fail_once(walk, 139)
    assert outcome(walk) == ("failed", 139)
    assert walk.moves == [Release(), Leave(139)]


def test_no_restart_means_no_restart() -> None:
    walk = fail_once(Walk(world_size=1), 93)
    assert outcome(walk) == ("failed", 93)


def waits_to_join(walk: Walk, rank: int, section: str = "join") -> Walk:
    return walk.on(ProgressSeen(0.5, rank, Progress(section=section, reports=True)))


def test_a_rank_that_leaves_before_the_others_have_joined_is_the_cause() -> None:
    walk = waits_to_join(Walk(world_size=2).formed(), 0).exited(1, 0, 1.0)
    assert walk.moves == []
    assert walk.on(DeadlinePassed(1.0 + machine.JOIN_LOOK_S)).moves == [Kill()]
    ended = walk.exited(0, 137, 4.0, after_kill=True).records(Kind.ROUND_ENDED)[0]
    assert (ended.rank, ended.data["cause"]) == (1, "early_exit")


def test_a_rank_that_has_joined_may_take_longer_than_another() -> None:
    walk = waits_to_join(Walk(world_size=2).formed(), 0).exited(1, 0, 1.0)
    walk = waits_to_join(walk, 0, "setup")
    for look in range(1, 5):
        assert walk.on(DeadlinePassed(1.0 + look * machine.JOIN_LOOK_S)).moves == []
    walk = walk.exited(0, 0, 60.0)
    assert outcome(walk) == ("succeeded", 0)


def test_a_launcher_that_ends_after_asking_does_not_kill_workers_that_save() -> None:
    walk = Walk(world_size=1).formed().on(StopRequested(1.0, "SIGINT", 130))
    assert walk.on(StopRequested(1.2, "the end of its launcher", 143, insist=False)).moves == []
    assert walk.on(StopRequested(1.3, "SIGINT", 130)).moves == [Kill()]


def test_the_same_user_error_twice_ends_the_run() -> None:
    walk = Walk(world_size=2)
    fail_once(walk, 1).on(DeadlinePassed(99.0))
    fail_once(walk, 1)
    assert outcome(walk) == ("failed", 1)
    assert "same failure twice" in walk.records(Kind.RUN_FINISHED)[0].data["reason"]


def test_a_stop_gives_the_workers_their_grace() -> None:
    walk = Walk(world_size=2).formed()
    assert walk.on(StopRequested(1.0, "SIGINT", 130)).moves == [Stop()]
    assert walk.state.deadline_s == 6.0
    assert walk.exited(0, 82, 2.0).moves == []
    walk.exited(1, 80, 2.1)
    assert walk.records(Kind.ROUND_ENDED)[0].data["cause"] == "stopped"
    assert outcome(walk) == ("stopped", 130)
    assert walk.records(Kind.RUN_FINISHED)[0].data["reason"] == "stopped by SIGINT"


def test_a_worker_that_does_not_leave_is_killed_after_the_grace() -> None:
    walk = Walk(world_size=2).formed().on(StopRequested(1.0, "SIGTERM", 143)).exited(0, 143, 1.1)
    assert walk.on(DeadlinePassed(6.0)).moves == [Kill()]
    walk.exited(1, 137, 6.1, after_kill=True)
    assert outcome(walk) == ("stopped", 143)
    assert "rank 1 was killed after 5 s of grace" in walk.records(Kind.RUN_FINISHED)[0].data["reason"]


def test_a_second_request_kills_at_once_and_keeps_the_first_code() -> None:
    walk = Walk(world_size=1).formed().on(StopRequested(1.0, "SIGINT", 130))
    assert walk.on(StopRequested(1.2, "SIGTERM", 143)).moves == [Kill()]
    assert walk.records(Kind.STOP_REQUESTED)[0].data["now"] is True
    assert outcome(walk.exited(0, 137, 1.3, after_kill=True)) == ("stopped", 130)


def test_a_failed_save_while_stopping_is_told() -> None:
    walk = Walk(world_size=1).formed().on(StopRequested(1.0, "SIGINT", 130)).exited(0, 83, 2.0)
    assert outcome(walk) == ("stopped", 130)
    assert "rank 0 failed while stopping: 83" in walk.records(Kind.RUN_FINISHED)[0].data["reason"]


def before_the_round(walk: Walk) -> Walk:
    return walk


def between_rounds(walk: Walk) -> Walk:
    return fail_once(walk)


@pytest.mark.parametrize("come_to", [before_the_round, between_rounds])
def test_a_stop_without_workers_ends_at_once(come_to: Any) -> None:
    walk = come_to(Walk(world_size=1)).on(StopRequested(2.0, "SIGINT", 130))
    assert outcome(walk) == ("stopped", 130)
    assert walk.records(Kind.ROUND_ENDED) == []
    assert walk.formed().said == ()


def test_a_stop_while_a_failed_round_ends_lets_no_new_round_start() -> None:
    walk = Walk(world_size=2).formed().exited(0, 137)
    assert walk.on(StopRequested(1.0, "SIGTERM", 143)).moves == []
    assert outcome(walk.exited(1, 137, 1.1, after_kill=True)) == ("stopped", 143)


def test_what_survives_sigkill_ends_the_run() -> None:
    walk = Walk(world_size=2).formed().exited(0, 137)
    assert walk.on(DeadlinePassed(1.0 + KILL_WAIT_S)).moves == [Leave(84)]
    assert "rank 1 did not end" in walk.records(Kind.RUN_FINISHED)[0].data["reason"]


@pytest.mark.parametrize("code", [2, 83, 84])
def test_what_is_wrong_before_the_first_round_is_for_the_person_who_typed_the_command(code: int) -> None:
    walk = Walk().on(RoundFailed(1.0, code, "no disk", "free some"))
    assert outcome(walk) == ("failed", code)
    assert walk.records(Kind.RUN_FINISHED)[0].data["hint"] == "free some"


def test_what_goes_wrong_before_a_later_round_is_tried_again_within_the_budget() -> None:
    walk = fail_once(Walk(world_size=1)).on(DeadlinePassed(99.0))
    walk.on(RoundFailed(100.0, 83, "no disk"))
    assert walk.records(Kind.ROUND_ENDED)[0].data["cause"] == "checkpoint"
    assert walk.on(DeadlinePassed(199.0)).moves == [Join(3, after_failure_of=2)]


def test_a_busy_checkpoint_directory_is_not_waited_for() -> None:
    walk = fail_once(Walk(world_size=1)).on(DeadlinePassed(99.0)).on(RoundFailed(100.0, 2, "busy"))
    assert outcome(walk) == ("failed", 2)


def test_news_of_the_dead_change_nothing() -> None:
    walk = Walk(world_size=2).formed().exited(0, 0)
    before = walk.state
    assert walk.exited(0, 137).said == ()
    assert walk.on(ProgressSeen(2.0, 0, Progress("step", 9, 0, 10, True))).said == ()
    assert walk.formed().said == ()
    assert walk.state == before
