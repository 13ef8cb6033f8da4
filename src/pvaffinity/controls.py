"""Controls: the same path as a test's, made now and without the promise under test.

A wait that ran out accuses Kubernetes only if the cluster does anything at all. So before that a control is made: a pod
that is placed like the awaited one must be scheduled, or run, first one without a volume and then, if that one has a
volume, one with a volume without affinity; a claim of such a volume must be bound; and so on. Where it is not, in about
ten times what is usual, the component awaited is down or starved, and nothing is judged.

A control is also what proves a reason without reading it: a pod like the refused one, whose volume has no affinity, is
placed, or runs on the node in question. Then nothing but the affinity can keep the other one out.
"""

from __future__ import annotations

__all__ = ["Controls"]

import contextlib
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from pvaffinity import manifests
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.budgets import Budget
from pvaffinity.conditions import (
    Condition,
    Look,
    is_bound,
    is_gone,
    is_ready_statefulset,
    is_running,
    is_scheduled,
    is_unschedulable,
)
from pvaffinity.describing import condition_of, describe
from pvaffinity.errors import ApiError
from pvaffinity.objects import Obj, Ref, ref_of
from pvaffinity.places import NotSupportedError
from pvaffinity.refusals import by_admission
from pvaffinity.waiting import WaitError, WaitUnknown, never, until

_STEPS: Mapping[str, tuple[Condition, ...]] = {
    "schedule": (is_scheduled,),
    "start": (is_scheduled, is_running),
    "mount-event": (is_scheduled, is_running),
    "recover-quick": (is_scheduled, is_running),
    "recover-slow": (is_scheduled, is_running),
    "deletion": (is_scheduled, is_running, is_gone),
}
"""What a control pod must become where a pod was awaited in vain, by the wait's budget."""

_ASKS = 3.0
"""Seconds between two questions whether the kubelet of an awaited pod is dead: longer than all but few waits take."""

_SETTLES = 2.0
"""Seconds in which the scheduler tries a pod again that waits: its back-off begins with one (pkg/scheduler/backend)."""


class Controls:
    """Makes controls in one namespace, and removes them again; see :class:`pvaffinity.waiting.Control`.

    Args:
        api: an administrator's.
        namespace: a test's own.
        ailing: names components that are known to be dead, of all or of those given; "" where all is well, or nothing
            is known.
        events: those seen in the namespace so far.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        ailing: Callable[..., str] = lambda *_: "",
        events: Callable[[], Sequence[Obj]] = tuple,
    ) -> None:
        self._api, self._namespace, self._ailing, self._events = api, namespace, ailing, events
        self._asked = time.monotonic()

    def obstacle(self, last: Obj | None) -> str:
        """The refusal by a policy, webhook or quota of what a controller wants to make for the test; "" for none.

        Or that the kubelet is dead on whose node the awaited pod is; asked from time to time.
        """
        messages = (e.get("message") or "" for e in self._events() if e.get("reason") == "FailedCreate")
        if refusal := next(filter(by_admission, messages), ""):
            return refusal
        node = ((last or {}).get("spec") or {}).get("nodeName")
        if not node or time.monotonic() - self._asked < _ASKS:
            return ""
        self._asked = time.monotonic()
        return self._ailing(f"kubelet-{node}")

    def why_nothing(
        self, ref: Ref, budget: Budget, last: Obj | None, nodes: Collection[str] = (), *, volume: bool = False
    ) -> str:
        """Make the control of a wait that ran out; "" where it did as it should, else why nothing can be expected.

        Args:
            ref: what was awaited.
            budget: the wait's; it says how far a pod was to get.
            last: the object as last seen.
            nodes: names of those it was awaited on; none where any would have done.
            volume: the second part, for a pod that has one: the control has a new volume, too. That makes the scheduler
                try every waiting pod again, so that nothing can be said of the awaited one afterwards.
        """
        if volume and not (ref.kind == "Pod" and budget.name in _STEPS and _has_claims(last)):
            return ""
        if dead := self._ailing():
            return dead
        try:
            with contextlib.ExitStack() as made:
                if not volume and (ref.kind == "StatefulSet" or _is_replica(last)):
                    name = Ref("StatefulSet", self._name(), self._namespace)
                    self._make(made, manifests.stateful_set(name, []))
                    self._await(name, is_ready_statefulset(1))
                if ref.kind == "Pod" and budget.name in _STEPS:
                    claims = self._seen_volume(made) if volume else []
                    self._pod(made, _placed_like(last, nodes), _STEPS[budget.name], claims)
                elif budget.name in ("bind", "deletion") and ref.kind.startswith("PersistentVolume"):
                    self._bound_claim(made, gone=budget.name == "deletion")
        except WaitError as error:
            return f"nor does a control get there: {_first(error)}"
        except (ApiError, *TRANSPORT_ERRORS) as error:
            return f"nor can a control be made: {_first(error)}"
        return ""

    def prove(self, condition: Condition, subject: Ref, met: Obj) -> None:
        """Prove what met a condition in words other than the usual ones (``condition.words``); nothing else to do.

        Args:
            condition: about a pod: the scheduler's refusal, or, with ``events``, its kubelet's.
            subject: the pod.
            met: the pod, or the event, that met it.

        Raises:
            NotSupportedError: no node would take the pod without its volume's affinity either.
            WaitError: it is not so: the pod got in after all, or was not refused again.
            WaitUnknown: the control did not get there, or could not be made.
            ApiError: the pod is gone.
        """
        said = met.get("message") if condition.events else condition_of(met, "PodScheduled").get("message")
        if not condition.words or re.search(condition.words, f"{met.get('reason', '')} {said or ''}"):
            return
        with contextlib.ExitStack() as made:
            if condition.events:
                since = self._counterpart(made, self._api.get(subject), is_running)
                until(self._api, subject, _refused_since(since), "mount-event", control=self)
            else:
                self._counterpart(made, met, is_scheduled)
                until(self._api, subject, is_unschedulable, control=self)
                never(self._api, subject, is_scheduled, _SETTLES)

    def _counterpart(self, made: contextlib.ExitStack, pod: Obj, becomes: Condition) -> int:
        """Make the pod's like with a volume without affinity; the resourceVersion at which it has become that."""
        try:
            claim = self._bound_claim(made)
            got = self._pod(made, _placed_like(pod), (is_scheduled, becomes), [claim.name])
        except (WaitError, ApiError) as error:
            refusal = condition_of(error.last if isinstance(error, WaitError) else None, "PodScheduled")
            if refusal.get("reason") == "Unschedulable":
                raise NotSupportedError(
                    f"no node would take {ref_of(pod)} without its volume's affinity either: {refusal.get('message')}"
                ) from error
            raise WaitUnknown(f"the control of {ref_of(pod)} did not get there: {error}") from error
        return int(got["metadata"]["resourceVersion"])

    def _pod(
        self,
        made: contextlib.ExitStack,
        placed: Mapping[str, Any],
        becomes: Sequence[Condition],
        claims: Sequence[str] = (),
    ) -> Obj:
        ref = Ref("Pod", self._name(), self._namespace)
        got = self._make(made, manifests.pod(ref, claims, **placed))
        for condition in becomes:
            if condition is is_gone:
                self._api.delete(ref)
            got = self._await(ref, condition)
        return got

    def _seen_volume(self, made: contextlib.ExitStack) -> list[str]:
        """The claim of a volume made now: its pod is placed only by a scheduler that hears of volumes at all."""
        volume, claim = manifests.bound_pair(Ref("PersistentVolumeClaim", self._name(), self._namespace))
        self._make(made, volume)
        self._make(made, claim)
        return [claim["metadata"]["name"]]

    def _bound_claim(self, made: contextlib.ExitStack, *, gone: bool = False) -> Ref:
        """Make a volume without affinity and its claim; where ``gone``, delete them again and wait for that."""
        name = self._name()
        claim, volume = Ref("PersistentVolumeClaim", name, self._namespace), Ref("PersistentVolume", name)
        self._make(made, manifests.persistent_volume(name, None, mark=self._namespace, claim_ref=claim))
        self._make(made, manifests.claim(claim, name))
        self._await(claim, is_bound)
        for ref in (claim, volume) if gone else ():
            self._api.delete(ref)
            self._await(ref, is_gone)
        return claim

    def _await(self, ref: Ref, condition: Condition) -> Obj:
        return until(self._api, ref, condition, "control")

    def _make(self, made: contextlib.ExitStack, obj: Obj) -> Obj:
        made.enter_context(self._removed(ref_of(obj)))
        return self._api.create(obj)

    @contextlib.contextmanager
    def _removed(self, ref: Ref) -> Iterator[None]:
        """Delete it at the end; what cannot be deleted goes with the test's namespace, or is told by its workspace."""
        try:
            yield
        finally:
            with contextlib.suppress(ApiError, *TRANSPORT_ERRORS):
                self._api.delete(ref, grace_seconds=0 if ref.kind == "Pod" else None)

    def _name(self) -> str:
        return f"{self._namespace}-control-{secrets.token_hex(3)}"


def _placed_like(pod: Obj | None, nodes: Collection[str] = ()) -> Obj:
    """What of a pod's spec has it go where this one is; or, if that is nowhere yet, where it may and is awaited."""
    spec: Obj = (pod or {}).get("spec") or {}
    if spec.get("nodeName"):
        return {"affinity": manifests.on_one_of([spec["nodeName"]])}
    like = {key: spec[key] for key in ("nodeSelector", "affinity") if spec.get(key)}
    return {**like, "affinity": manifests.on_one_of(nodes)} if nodes else like


def _has_claims(pod: Obj | None) -> bool:
    volumes = ((pod or {}).get("spec") or {}).get("volumes") or ()
    return any("persistentVolumeClaim" in volume for volume in volumes)


def _is_replica(pod: Obj | None) -> bool:
    owners = ((pod or {}).get("metadata") or {}).get("ownerReferences") or ()
    return any(owner["kind"] == "StatefulSet" for owner in owners)


def _refused_since(version: int) -> Condition:
    """A mount refused once more, after this resourceVersion.

    What the Node authoriser did not allow at first, it does when another pod of the node has run that was made later.
    """

    def check(event: Obj | None) -> Look:
        newer = event is not None and int(event["metadata"]["resourceVersion"]) > version
        met = newer and event is not None and event.get("reason") == "FailedMount"
        return Look("met" if met else "not yet", describe(event) if event else "no event")

    return Condition("refused again by its kubelet, which ran the like of it", check, "mount-event", events=True)


def _first(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
