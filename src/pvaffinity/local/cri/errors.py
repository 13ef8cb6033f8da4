"""How the simulator refuses a call: exceptions named after gRPC's status codes, known here without gRPC."""

from __future__ import annotations

__all__ = [
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "NotFoundError",
    "ResourceExhaustedError",
    "RpcError",
    "UnimplementedError",
]


class RpcError(Exception):
    """A call is answered with a status other than OK; the text is for the reader of the kubelet's log."""

    code = "UNKNOWN"


class InvalidArgumentError(RpcError):
    """The request lacks what it must have, or cannot be decoded."""

    code = "INVALID_ARGUMENT"


class NotFoundError(RpcError):
    """There is no sandbox, container or image of that name."""

    code = "NOT_FOUND"


class FailedPreconditionError(RpcError):
    """The sandbox or container is not in a state that admits the call."""

    code = "FAILED_PRECONDITION"


class ResourceExhaustedError(RpcError):
    """The node has no address left."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceededError(RpcError):
    """The command of an ExecSync took longer than its timeout; the kubelet fails the probe with it."""

    code = "DEADLINE_EXCEEDED"


class UnimplementedError(RpcError):
    """The simulator does not do this."""

    code = "UNIMPLEMENTED"
