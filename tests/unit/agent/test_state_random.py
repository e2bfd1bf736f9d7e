"""Whatever comes in whatever order, the promises of the state machine hold."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.agent import state as machine
from phalanx.agent.policy import Exit, Progress
from phalanx.agent.state import (
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
    Stop,
    StopRequested,
)
from phalanx.events.kinds import Kind
from phalanx.plan.model import FailurePlan
from phalanx.rendezvous.round import Member, Round

CODES = (0, 0, 0, 1, 2, 3, 80, 80, 82, 83, 84, 93, 137, 139, 143)


@dataclass
class World:
    """Processes as the machine's commands make and end them, and what it must never do."""

    limits: FailurePlan
    size: int
    now: float = 0.0
    alive: set[int] = field(default_factory=set)
    kill_sent: bool = False
    joining: int | None = None
    restarts: int = 0
    rounds: list[int] = field(default_factory=list)
    finished: int = 0
    left: int | None = None
    open_round: bool = False

    def obey(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            assert self.left is None, "a command after Leave"
            match command:
                case Join(number, after):
                    assert self.joining is None
                    assert not self.alive, "a new round beside living workers"
                    self.joining = number
                    self.restarts += after is not None
                case Start():
                    assert not self.alive, "workers started beside living ones"
                    self.alive, self.kill_sent = set(range(self.size)), False
                case Stop():
                    assert self.alive
                case Kill():
                    self.kill_sent = True
                case Release():
                    assert not self.alive, "released with living workers"
                case Record(Kind.ROUND_STARTED, number):
                    assert number is not None
                    self.rounds.append(number)
                    self.open_round = True
                case Record(Kind.ROUND_ENDED):
                    self.open_round = False
                case Record(Kind.RUN_FINISHED):
                    self.finished += 1
                case Leave(code):
                    assert not self.open_round, "the run ended within a round"
                    self.left = code
                case Record():
                    pass

    def event(self, draw: st.DataObject, state: machine.State) -> Event:
        self.now += draw.draw(st.sampled_from((0.0, 0.01, 1.0, 10.0)))
        kinds = ["stop", "progress", "deadline", "deadline"]
        kinds += ["exit"] * 6 if self.alive else []
        kinds += ["formed"] * 6 + ["unformed"] if self.joining is not None else []
        match draw.draw(st.sampled_from(kinds)):
            case "exit":
                return self._exit(draw)
            case "formed":
                assert self.joining is not None
                member = Member("n", tuple(f"h:{rank}" for rank in range(self.size)))
                formed = Round(self.joining, (member,))
                self.joining = None
                return RoundFormed(self.now, formed, self.restarts)
            case "unformed":
                self.joining = None
                return RoundFailed(self.now, draw.draw(st.sampled_from((2, 83, 84))), "no")
            case "stop":
                return StopRequested(self.now, "SIGTERM", draw.draw(st.sampled_from((130, 143))))
            case "progress":
                rank = draw.draw(st.integers(0, self.size - 1))
                return ProgressSeen(self.now, rank, self._progress(draw))
            case _:
                if state.deadline_s is None:
                    return DeadlinePassed(self.now)
                if state.phase is Phase.ENDING:  # a process that outlives SIGKILL is another test's
                    return DeadlinePassed(state.deadline_s - 0.001)
                self.now = max(self.now, state.deadline_s)
                return DeadlinePassed(self.now)

    def _exit(self, draw: st.DataObject) -> Event:
        rank = draw.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(rank)
        code = 137 if self.kill_sent else draw.draw(st.sampled_from(CODES))
        progress = self._progress(draw)
        return ProcessExited(self.now, Exit(rank, code, self.now, progress, None, self.kill_sent))

    def _progress(self, draw: st.DataObject) -> Progress:
        done = draw.draw(st.integers(0, 20))
        return Progress("step", done, 0, draw.draw(st.sampled_from((0, 20))), draw.draw(st.booleans()))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(draw=st.data(), size=st.integers(1, 4), restarts=st.integers(0, 4))
def test_promises_hold_for_random_events(draw: st.DataObject, size: int, restarts: int) -> None:
    limits = FailurePlan(max_restarts=restarts, grace_s=5.0, no_progress_rounds=3)
    world = World(limits, size)
    state, commands = machine.begin(limits, 4, 0.0)
    world.obey(commands)
    for _ in range(80):
        alive_before = frozenset(world.alive)
        state, commands = machine.step(state, world.event(draw, state))
        world.obey(commands)
        assert state.alive <= alive_before | world.alive
        assert world.restarts <= restarts
        assert world.rounds == sorted(set(world.rounds)), "a round number came twice"
        if state.phase in (Phase.STOPPING, Phase.ENDING, Phase.JUDGING, Phase.WAITING):
            assert state.deadline_s is not None, "a wait without end"
        if world.left is not None:
            break
    assert world.finished == (world.left is not None)
    if world.left is not None:
        assert not world.alive
        assert state.phase is Phase.FINISHED


@settings(max_examples=60, deadline=None, derandomize=True)
@given(draw=st.data(), size=st.integers(1, 4))
def test_a_stop_always_ends_the_run_once_the_workers_are_gone(draw: st.DataObject, size: int) -> None:
    limits = FailurePlan(max_restarts=9, grace_s=5.0, no_progress_rounds=9)
    world = World(limits, size)
    state, commands = machine.begin(limits, 1, 0.0)
    world.obey(commands)
    for _ in range(draw.draw(st.integers(0, 30))):
        if world.left is None:
            state, commands = machine.step(state, world.event(draw, state))
            world.obey(commands)
    for _ in range(2):
        state, commands = machine.step(state, StopRequested(world.now, "SIGTERM", 143))
        world.obey(commands if world.left is None else ())
    while world.alive:
        state, commands = machine.step(state, world._exit(draw))
        world.obey(commands)
    assert world.left is not None
