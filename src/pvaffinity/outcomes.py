"""A refusal is a value: what the API server made of a request, to be compared by code, reason and field.

Prose is never compared: the text of a refusal changes between releases, its ``Status`` fields do not.
"""

from __future__ import annotations

__all__ = ["FORBIDDEN", "IMMUTABLE", "Accepted", "Outcome", "Refused", "attempt", "refused_as"]

from collections.abc import Callable
from dataclasses import dataclass, field

from pvaffinity.api import Response
from pvaffinity.errors import ApiError, Cause
from pvaffinity.objects import Obj
from pvaffinity.refusals import no_verdict


@dataclass(frozen=True)
class Accepted:
    """The server took the request; ``object`` is what it answered (stored, unless it was a dry run)."""

    object: Obj = field(compare=False, repr=False)
    warnings: tuple[str, ...] = field(compare=False, default=())

    def __str__(self) -> str:
        return "accepted"


@dataclass(frozen=True)
class Refused:
    """The server refused. ``causes`` is a set: the server may say the same thing twice."""

    code: int
    reason: str
    causes: frozenset[Cause] = frozenset()
    message: str = field(compare=False, default="", repr=False)

    def __str__(self) -> str:
        causes = ", ".join(sorted(f"{c.field}: {c.reason}" for c in self.causes))
        return f"refused with {self.code} {self.reason}" + (f" ({causes})" if causes else "")


Outcome = Accepted | Refused

IMMUTABLE = Refused(422, "Invalid", frozenset({Cause("FieldValueInvalid", "nodeAffinity")}))
"""What a server without the gate says to a changed node affinity. The field is ``nodeAffinity``, not
``spec.nodeAffinity`` (k8s.io/kubernetes pkg/apis/core/validation/validation.go, validatePvNodeAffinity)."""

FORBIDDEN = Refused(403, "Forbidden")
"""What RBAC says. It carries no causes."""


def attempt(request: Callable[[], Response | Obj]) -> Outcome:
    """Make a request and turn the answer into a value; what is no verdict on the request is raised.

    Raises:
        ApiError: no verdict, see :func:`refused_as`; transport errors are no answers at all, and are raised as well.
    """
    try:
        answer = request()
    except ApiError as error:
        return refused_as(error)
    return Accepted(answer.body, answer.warnings) if isinstance(answer, Response) else Accepted(answer)


def refused_as(error: ApiError) -> Refused:
    """The refusal in an :class:`ApiError`.

    Raises:
        ApiError: this very one, where it says nothing about the request: the server could not answer, or a policy,
            webhook or quota refused it (:func:`pvaffinity.refusals.no_verdict`).
    """
    if no_verdict(error):
        raise error
    return Refused(error.code, error.reason, frozenset(error.causes), error.message)
