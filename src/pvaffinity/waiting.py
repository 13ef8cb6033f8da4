"""Waiting for a state of an object, or seeing to it that one never comes, by watching instead of sleeping.

Both say in the end what was seen meanwhile (:mod:`pvaffinity.looking`), and accuse nobody of what judges nobody.
"""

from __future__ import annotations

__all__ = [
    "Control",
    "NeverUnknown",
    "NeverViolated",
    "WaitError",
    "WaitTerminal",
    "WaitTimeout",
    "WaitUnknown",
    "never",
    "until",
]

import time
from collections.abc import Callable, Collection
from typing import Protocol

from pvaffinity import durations, looking
from pvaffinity.api import Api
from pvaffinity.budgets import Budget, budget_of
from pvaffinity.conditions import Condition
from pvaffinity.errors import ApiError
from pvaffinity.looking import (
    Looking,
    NeverUnknown,
    NeverViolated,
    Renders,
    WaitError,
    WaitTerminal,
    WaitTimeout,
    WaitUnknown,
)
from pvaffinity.objects import Obj, Ref

_BACK_OFF = 10.0
"""Seconds in which a scheduler that goes again tries every pod: its longest back-off (pkg/scheduler/backend)."""

_ASKED = 1.0
"""Seconds after which a stream is ended where there is a control: it is asked at every look."""


class Control(Protocol):
    """Tells a cluster that breaks a promise from one that does nothing at all (:mod:`pvaffinity.controls`)."""

    def obstacle(self, last: Obj | None) -> str:
        """What makes it pointless to wait any longer and judges nobody, such as a policy's refusal; "" for nothing.

        Args:
            last: the object awaited, as last seen.
        """

    def why_nothing(
        self, ref: Ref, budget: Budget, last: Obj | None, nodes: Collection[str] = (), *, volume: bool = False
    ) -> str:
        """Why nothing can be expected of the cluster at the moment; "" where a control did what was awaited."""


def until(
    api: Api,
    ref: Ref,
    condition: Condition,
    budget: str | float | Budget | None = None,
    *,
    timeline: Renders | None = None,
    evidence: str | Callable[[], str] | None = None,
    control: Control | None = None,
) -> Obj:
    """Wait until the condition is met; answers the object (or the event) that met it, or the last one seen.

    Args:
        api: who looks.
        ref: at what.
        condition: for what.
        budget: a name of :data:`~pvaffinity.budgets.BUDGETS`, a budget, or seconds; by default the condition's own.
        timeline: its newest entries are put into the message; by default, what this wait saw.
        evidence: where the evidence lies, for the message.
        control: asked between looks whether anything stands in the way, and when the budget is over whether the
            cluster does anything at all. Without one, a time-out is taken for a judgement.

    Raises:
        WaitTimeout: not met within the budget.
        WaitUnknown: not met, which judges nobody: it could not be looked at when the budget was over, surroundings kept
            the object from it, or the control did not do it either, or as late.
        WaitTerminal: it cannot be met any more, or the object was deleted or replaced (its UID changed).
        ApiError: the identity may not look.
    """
    wait = Looking(api, ref, condition, budget_of(condition.budget if budget is None else budget), timeline, evidence)
    if control is not None:
        wait.slice = _ASKED
    met, why = _until(wait, control)
    if met is not None:
        durations.note(wait.budget, time.monotonic() - wait.started)
        return met
    if control is not None:
        why = why or control.why_nothing(ref, wait.budget, wait.last, condition.nodes)
        why = why or _late(wait, control)
        why = why or control.why_nothing(ref, wait.budget, wait.last, condition.nodes, volume=True)
    raise wait.failure(WaitUnknown if why else WaitTimeout, f"was not {condition.name} within {wait.budget}", why)


def _until(wait: Looking, control: Control | None) -> tuple[Obj | None, str]:
    """What met the condition before the deadline; or None, and what of the last look is due to surroundings."""
    name, why = wait.condition.name, ""
    for obj, look in wait.looks(strict=False):
        if look.state == "met":
            return obj or wait.last or {}, ""
        why = look.unjudged
        if look.state == "terminal":
            raise wait.failure(WaitUnknown if why else WaitTerminal, f"can no longer become {name}", why)
        if control is not None and (obstacle := control.obstacle(wait.last)):
            raise wait.failure(WaitUnknown, f"cannot become {name}", obstacle)
    if wait.ended:
        raise wait.failure(WaitUnknown, f"was not seen {name}", wait.ended)
    if wait.trouble:
        raise wait.failure(WaitUnknown, f"was not seen {name} within {wait.budget}, nor looked at at its end")
    return None, why


def _late(wait: Looking, control: Control) -> str:
    """Look again after the control got there, which may have taken what was down until then; why it is unknown."""
    if wait.budget.name == "settle":  # nothing is awaited, so that nothing can be late
        return ""
    wait.deadline = time.monotonic() + _BACK_OFF
    met, why = _until(wait, control)
    return why if met is None else f"it came late, {time.monotonic() - wait.started:.0f} s after, as did a control"


def never(
    api: Api,
    ref: Ref,
    condition: Condition,
    during: str | float | Budget = "settle",
    *,
    timeline: Renders | None = None,
    evidence: str | Callable[[], str] | None = None,
) -> Obj | None:
    """See to it that the condition is not met for a while, not even for a moment; answers the object as last seen.

    Ends early, and well, when the condition's terminal state is reached.

    Raises:
        NeverViolated: it was met.
        NeverUnknown: part of the history was lost (410 Expired), a stream that broke did not show it any more, or
            surroundings are to blame.
        WaitTerminal: the object was deleted or replaced meanwhile.
        ApiError: the identity may not look.
    """
    wait = Looking(api, ref, condition, budget_of(during), timeline, evidence)
    try:
        for _, look in wait.looks(strict=True):
            kind: type[WaitError] = NeverUnknown if look.unjudged else NeverViolated
            if look.state == "met":
                raise wait.failure(kind, f"was {condition.name}, which it must not be", look.unjudged)
            if look.state == "terminal" and wait.lost:
                kind = NeverUnknown if look.unjudged else WaitTerminal
                what = f"vanished while it was to be seen never to be {condition.name}"
                raise wait.failure(kind, what, look.unjudged)
            if look.state == "terminal":
                break
    except ApiError as error:
        if not looking.is_expired(error):
            raise
        raise wait.failure(NeverUnknown, f"may have been {condition.name}: part of its history was lost") from error
    if wait.trouble:
        what = f"may have been {condition.name}: it could not be looked at to the end"
        raise wait.failure(NeverUnknown, what, wait.ended)
    return wait.last
