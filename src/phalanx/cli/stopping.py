"""What the launcher does with requests to stop: which signal goes to the agent, and when. No I/O, no clock.

The agent stops gracefully on the first signal and at once on the second. Signals that come close together
merge on their way, so the second is sent only when the agent has told that it knows of the first.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

# `timeout` and some shells signal a process and then its group: that is one request, not two.
SAME_REQUEST_S = 0.1
# The agent needs a moment before it listens; one that says nothing for so long is signalled all the same.
READY_WAIT_S = 5.0
ACKNOWLEDGE_WAIT_S = 2.0
# Beyond the grace period: the agent waits 20 s for processes that outlive SIGKILL, then gives up by itself.
OVERDUE_S = 45.0


@dataclass
class StopRelay:
    """Takes requests as they come and says what to send. Times, and `began_s`, are monotonic seconds."""

    grace_s: float
    began_s: float
    _waiting: list[int] = field(default_factory=list)
    _requested: int = 0
    _asked_s: float | None = None
    _sent: int = 0
    _sent_s: float = 0.0

    def request(self, signum: int, now_s: float) -> None:
        """Note a signal. A terminal that goes away says so more than once: SIGHUP never means "at once"."""
        if self._asked_s is not None and now_s - self._asked_s < SAME_REQUEST_S:
            return
        if self._requested >= 2 or (signum == signal.SIGHUP and self._requested):
            return
        self._requested += 1
        self._asked_s = now_s
        self._waiting.append(signum)

    def due(self, now_s: float, *, agent_ready: bool, acknowledged: int) -> int | None:
        """The signal to send now, if any. `acknowledged` counts the agent's `stop_requested` events."""
        if not self._waiting:
            return None
        if not agent_ready and now_s - self.began_s < READY_WAIT_S:
            return None
        if self._sent > acknowledged and now_s - self._sent_s < ACKNOWLEDGE_WAIT_S:
            return None
        self._sent += 1
        self._sent_s = now_s
        return self._waiting.pop(0)

    def is_overdue(self, now_s: float) -> bool:
        """Whether the agent had more than enough time to end after the last request."""
        if self._asked_s is None:
            return False
        allowed_s = OVERDUE_S if self._requested > 1 else OVERDUE_S + self.grace_s
        return now_s - self._asked_s > allowed_s
