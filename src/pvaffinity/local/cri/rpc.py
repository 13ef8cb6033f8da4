"""How services describe their calls to the server."""

from __future__ import annotations

__all__ = ["Method", "Methods"]

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

_Request = TypeVar("_Request", bound=Message)


@dataclasses.dataclass(frozen=True)
class Method(Generic[_Request]):
    """One unary call: the message it takes, and what answers it (or raises :class:`~.errors.RpcError`)."""

    request: type[_Request]
    answer: Callable[[_Request], Awaitable[Message]]


Methods = dict[str, Method[Any]]
