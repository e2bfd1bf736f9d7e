"""Ports for one round, held so that no other program can take them before or after the worker does.

Each port is bound and not listening, with SO_REUSEPORT. A worker of the same user whose TensorFlow runs with
TF_GRPC_REUSE_PORT=1 binds beside it; an ordinary bind() fails with EADDRINUSE. The kernel hands connections
to listening sockets only, so the agent never sees one. The wildcard address of both families is taken because
TensorFlow binds that one, and a program on any single address would be in its way.
"""

from __future__ import annotations

import socket

HOST = "127.0.0.1"


class HeldPorts:
    """Fresh ports, one a worker, held until `close`."""

    def __init__(self, count: int) -> None:
        """Bind `count` ports that nobody uses. Raises OSError when the machine has none."""
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._sockets.append(_bound())
        except OSError:
            self.close()
            raise
        self.addresses = tuple(f"{HOST}:{held.getsockname()[1]}" for held in self._sockets)

    def close(self) -> None:
        """Give the ports back."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()


def _bound() -> socket.socket:
    """A socket bound to a free port of every address; only IPv4 where the kernel has no IPv6."""
    try:
        return _bind(socket.AF_INET6)
    except OSError:
        return _bind(socket.AF_INET)


def _bind(family: socket.AddressFamily) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("", 0))
    except OSError:
        held.close()
        raise
    return held
