"""The one error that users are meant to read: what is wrong, and what to do about it."""

from __future__ import annotations

__all__ = ["ApiError", "Cause", "RoomError", "UserError", "did_you_mean"]

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class UserError(Exception):
    """Something outside the project must change before it can go on.

    Args:
        what: one line that says what is wrong.
        fix: one line that says what to do, best of all a command to paste.
        detail: more lines for those who want them, such as the tail of a log.

    The command line prints it and exits with 2; pytest raises it as ``UsageError`` (exit code 4).
    """

    def __init__(self, what: str, fix: str, *, detail: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.detail = detail

    def __str__(self) -> str:
        lines = [self.what, f"  to fix: {self.fix}"]
        if self.detail:
            lines += ["", *(f"    {line}" for line in self.detail.rstrip().splitlines())]
        return "\n".join(lines)


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """What to put behind the name that is not known: ``; did you mean gate-on?``, or nothing where none is close."""
    close = difflib.get_close_matches(wrong, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


class RoomError(UserError):
    """The machine is too full at the moment: deleting another cluster would help."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """One entry of ``Status.details.causes`` (k8s.io/apimachinery ``metav1.StatusCause``)."""

    reason: str
    field: str
    message: str = dataclasses.field(compare=False, default="")


class ApiError(Exception):
    """The API server answered with a ``Status`` of failure (k8s.io/apimachinery ``metav1.Status``).

    Compare by :attr:`code`, :attr:`reason` and :attr:`causes`, never by prose.
    """

    def __init__(self, code: int, reason: str, message: str, causes: Sequence[Cause] = ()) -> None:
        super().__init__(f"{f'{code} {reason}'.rstrip()}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)

    @classmethod
    def from_status(cls, code: int, status: Mapping[str, Any]) -> ApiError:
        """Build the error from a decoded ``Status``; ``code`` is the HTTP status, used if the body has none."""
        details = status.get("details") or {}
        causes = [
            Cause(c.get("reason", ""), c.get("field", ""), c.get("message", "")) for c in details.get("causes") or ()
        ]
        return cls(status.get("code") or code, status.get("reason") or "", status.get("message") or "", causes)
