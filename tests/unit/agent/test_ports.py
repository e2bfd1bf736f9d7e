"""Held ports are nobody else's, and nobody is connected to the agent by them."""

from __future__ import annotations

import errno
import socket

import pytest

from phalanx.agent.ports import HeldPorts


def bind_error(address: str, port: int, *options: int) -> int | None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as other:
        for option in options:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            other.bind((address, port))
        except OSError as error:
            return error.errno
    return None


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "127.0.0.2"])
def test_an_ordinary_bind_to_a_held_port_fails_until_it_is_given_back(address: str) -> None:
    ports = HeldPorts(1)
    port = int(ports.addresses[0].rpartition(":")[2])
    assert bind_error(address, port) == errno.EADDRINUSE
    assert bind_error(address, port, socket.SO_REUSEADDR) == errno.EADDRINUSE
    assert bind_error(address, port, socket.SO_REUSEPORT) is None
    ports.close()
    assert bind_error(address, port) is None


def test_a_held_port_refuses_connections_until_somebody_listens_beside_it() -> None:
    ports = HeldPorts(1)
    port = int(ports.addresses[0].rpartition(":")[2])
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("0.0.0.0", port))
        server.listen()
        assert client.connect_ex(("127.0.0.1", port)) == 0
        server.settimeout(5)
        server.accept()[0].close()
    ports.close()


def test_ports_held_at_the_same_time_differ() -> None:
    held = [HeldPorts(20) for _ in range(5)]
    addresses = [address for ports in held for address in ports.addresses]
    assert len(set(addresses)) == 100
    for ports in held:
        ports.close()
