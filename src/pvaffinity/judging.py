"""Whether an error judges Kubernetes: a wrong answer does; no answer, or one about something else, does not.

Only *broken* accuses Kubernetes, and only two things say it: a failed assertion, as a wait's errors are, and an answer
of the server that is a verdict. What else ends a check is *not judged*, with the reason: a fault of the suite's own,
too.
"""

from __future__ import annotations

__all__ = ["ITSELF", "NotJudgedError", "why_not_judged"]

import errno

from pvaffinity.errors import ApiError, UserError
from pvaffinity.kubectl import KubectlError
from pvaffinity.refusals import no_verdict
from pvaffinity.waiting import NeverUnknown, WaitUnknown
from pvaffinity.wire import TRANSPORT_ERRORS

ITSELF = "the suite itself: "
"""What the reason begins with where neither Kubernetes nor its surroundings are to blame, such as for a KeyError."""

_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of this machine: a disk, a quota, file descriptors or memory that have run out."""


class NotJudgedError(Exception):
    """A check could not be judged; the text says why, in one line that may be followed by others."""


_UNJUDGED = (NotJudgedError, UserError, WaitUnknown, NeverUnknown, KubectlError, MemoryError, *TRANSPORT_ERRORS)
_VERDICTS = (AssertionError, ApiError)


def why_not_judged(error: BaseException) -> str:
    """Why this error says nothing about Kubernetes, in one line; empty where it is a judgement.

    An error that was raised *from* another one is what that one is; what happened to be handled when it was raised
    (``__context__``) is of no account. A group, such as pytest makes of several teardowns, judges if one part does.

    Args:
        error: what ended a check.
    """
    why = _why(error)
    return f"{ITSELF}{type(error).__name__}: {_line(error)}".removesuffix(": ") if why is None else why


def _why(error: BaseException) -> str | None:
    """As above, but None where it is neither a judgement nor known to be none."""
    if isinstance(error, BaseExceptionGroup):
        reasons = [why_not_judged(part) for part in error.exceptions]
        return reasons[0] if all(reasons) else ""
    if _is_unjudged(error):
        return (error.what if isinstance(error, UserError) else _line(error)) or type(error).__name__
    why = None if error.__cause__ is None else _why(error.__cause__)
    return "" if why is None and isinstance(error, _VERDICTS) else why


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _is_unjudged(error: BaseException) -> bool:
    return (
        isinstance(error, _UNJUDGED)
        or (isinstance(error, ApiError) and no_verdict(error))
        or (isinstance(error, OSError) and error.errno in _MACHINE)
    )
