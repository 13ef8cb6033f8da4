"""Whether an error judges Kubernetes: a wrong answer does; no answer, or one about something else, does not.

Only *broken* accuses Kubernetes. What this module finds a reason for is *not judged* instead, with that reason.
"""

from __future__ import annotations

__all__ = ["NotJudgedError", "why_not_judged"]

import errno

from pvaffinity.errors import ApiError, UserError
from pvaffinity.kubectl import KubectlError
from pvaffinity.refusals import no_verdict
from pvaffinity.waiting import NeverUnknown, WaitUnknown
from pvaffinity.wire import TRANSPORT_ERRORS

_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of this machine: a disk, a quota, file descriptors or memory that have run out."""


class NotJudgedError(Exception):
    """A check could not be judged; the text says why, in one line that may be followed by others."""


_UNJUDGED = (NotJudgedError, UserError, WaitUnknown, NeverUnknown, KubectlError, MemoryError, *TRANSPORT_ERRORS)


def why_not_judged(error: BaseException) -> str:
    """Why this error says nothing about Kubernetes, in one line; empty where it is a judgement.

    An error that was raised *from* another one is what that one is; what happened to be handled when it was raised
    (``__context__``) is of no account. A group, such as pytest makes of several teardowns, judges if one part does.

    Args:
        error: what ended a check.
    """
    if isinstance(error, BaseExceptionGroup):
        reasons = [why_not_judged(part) for part in error.exceptions]
        return reasons[0] if all(reasons) else ""
    if _is_unjudged(error):
        text = error.what if isinstance(error, UserError) else str(error)
        return text.partition("\n")[0] or type(error).__name__
    return why_not_judged(error.__cause__) if error.__cause__ is not None else ""


def _is_unjudged(error: BaseException) -> bool:
    return (
        isinstance(error, _UNJUDGED)
        or (isinstance(error, ApiError) and no_verdict(error))
        or (isinstance(error, OSError) and error.errno in _MACHINE)
    )
