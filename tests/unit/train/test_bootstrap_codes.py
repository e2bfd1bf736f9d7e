"""Which exit code an exception gives, without TensorFlow: its errors are known by name."""

from __future__ import annotations

import pytest

from phalanx.contract import ExitCode
from phalanx.errors import CheckpointMismatchError, FencedError, InfrastructureError
from phalanx.train.bootstrap import exit_code_for


def tensorflow_error(name: str, message: str) -> Exception:
    kind = type(name, (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})
    error = kind(message)
    assert isinstance(error, Exception)
    return error


def caused(by: BaseException, *, hidden: bool = False) -> BaseException:
    try:
        try:
            raise by
        except BaseException as error:
            if hidden:
                raise ValueError("mine") from None
            raise ValueError("mine") from error
    except ValueError as error:
        return error


LOST = tensorflow_error("UnavailableError", "Socket closed")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("bad"), ExitCode.USER_ERROR),
        (MemoryError(), ExitCode.USER_ERROR),
        (InfrastructureError("no"), ExitCode.INFRASTRUCTURE),
        (CheckpointMismatchError("no"), ExitCode.NO_RESTART),
        (FencedError("late"), ExitCode.PEER_LOST),
        (LOST, ExitCode.PEER_LOST),
        (tensorflow_error("AbortedError", "anything"), ExitCode.PEER_LOST),
        (tensorflow_error("InternalError", "Connection reset by peer"), ExitCode.PEER_LOST),
        (tensorflow_error("DeadlineExceededError", "Collective has timed out"), ExitCode.PEER_LOST),
        (tensorflow_error("UnknownError", "Could not start gRPC server"), ExitCode.INFRASTRUCTURE),
        (tensorflow_error("InvalidArgumentError", "shapes differ"), ExitCode.USER_ERROR),
        (caused(LOST), ExitCode.PEER_LOST),
        (caused(LOST, hidden=True), ExitCode.USER_ERROR),
        (caused(caused(InfrastructureError("no"))), ExitCode.INFRASTRUCTURE),
        # The same words from anybody else are the program's own.
        (RuntimeError("Socket closed"), ExitCode.USER_ERROR),
    ],
)
def test_exit_code(error: BaseException, code: ExitCode) -> None:
    assert exit_code_for(error) == code


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert exit_code_for(one) == ExitCode.USER_ERROR
