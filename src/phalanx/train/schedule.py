"""When what happens in a training run: pure arithmetic of step numbers. No TensorFlow, no I/O.

All ranks must do the same collective work at the same steps, so it is decided here, from numbers that are
equal on all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Ends at `steps`; logs, evaluates and saves at each multiple of an interval, and at the end.

    An interval of 0 means never, but for logging and saving at the end.
    """

    steps: int
    log_every: int
    validation_every: int
    checkpoint_every: int
    steps_per_execution: int = 1

    def next_steps(self, step: int) -> int:
        """How many steps to run at once after `step`: never past a step at which something is due."""
        room = self.steps - step
        for every in (self.log_every, self.validation_every, self.checkpoint_every):
            if every:
                room = min(room, every - step % every)
        return min(room, self.steps_per_execution)

    def logs_at(self, step: int) -> bool:
        """Metrics are read (a collective) here; always before an evaluation, which uses the same metrics."""
        return self._due(step, self.log_every) or step == self.steps or self.evaluates_at(step)

    def evaluates_at(self, step: int) -> bool:
        """The validation data is evaluated here."""
        return self.validation_every > 0 and (self._due(step, self.validation_every) or step == self.steps)

    def saves_at(self, step: int) -> bool:
        """A checkpoint is saved here."""
        return self._due(step, self.checkpoint_every) or step == self.steps

    @staticmethod
    def _due(step: int, every: int) -> bool:
        return every > 0 and step % every == 0
