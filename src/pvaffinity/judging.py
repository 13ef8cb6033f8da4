"""Whether an error judges Kubernetes: a wrong answer does; no answer, or one about something else, does not.

Only *broken* accuses Kubernetes. What this module finds a reason for is *not judged* instead, with that reason.
"""

from __future__ import annotations

__all__ = ["NotJudgedError", "why_not_judged"]

from pvaffinity.errors import UserError
from pvaffinity.waiting import NeverUnknown, WaitUnknown
from pvaffinity.wire import tells_nothing


class NotJudgedError(Exception):
    """A check could not be judged; the text says why, in one line that may be followed by others."""


def why_not_judged(error: BaseException) -> str:
    """Why this error says nothing about Kubernetes, in one line; empty where it is a judgement.

    Args:
        error: what ended a check.
    """
    unjudged = isinstance(error, NotJudgedError | UserError | WaitUnknown | NeverUnknown) or tells_nothing(error)
    if not unjudged:
        return ""
    text = error.what if isinstance(error, UserError) else str(error)
    return text.partition("\n")[0] or type(error).__name__
