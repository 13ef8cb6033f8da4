"""What a test waits for, as values: each looks at one object and says *met*, *not yet* or *terminal*.

A terminal state is one from which the awaited one cannot be reached any more, so that a wait can fail at once.
"""

from __future__ import annotations

__all__ = [
    "Condition",
    "Look",
    "has_event",
    "is_affected_since",
    "is_available",
    "is_bound",
    "is_gone",
    "is_ready_statefulset",
    "is_refused_by_kubelet",
    "is_rejected",
    "is_running",
    "is_running_on",
    "is_scheduled",
    "is_scheduled_for",
    "is_succeeded",
    "is_unschedulable",
    "is_unschedulable_because",
    "is_waiting_to_start",
    "replacing",
]

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from pvaffinity.describing import condition_of, describe, is_leaving, status_of
from pvaffinity.objects import Obj
from pvaffinity.surroundings import surroundings
from pvaffinity.verdicts import REJECTED
from pvaffinity.words import AFFINITY_CHECK, AUTHORISER, UNBOUND, VOLUME_AFFINITY


@dataclass(frozen=True)
class Look:
    """One look at an object: what it means, and what was seen, in one line.

    Attributes:
        state: what it means for the wait.
        seen: what was seen.
        unjudged: what of it is due to surroundings (:mod:`pvaffinity.surroundings`), so that it judges nobody.
    """

    state: Literal["met", "not yet", "terminal"]
    seen: str
    unjudged: str = ""


@dataclass(frozen=True)
class Condition:
    """A named question about an object, or about the events on it.

    Attributes:
        name: reads after "was" and "was not", such as ``running on a node in us-east1-c``.
        check: looks at the object, None where there is none; with ``events``, looks at one event.
        budget: the name of the budget to wait for it, where none is given.
        events: look at the events about the object instead of the object.
        follows: another object of the same name is as good; where False, it is terminal.
        words: finds the usual message in what met it. A state that is met in other words is not proven by them, and
            wants a proof that does without (:meth:`pvaffinity.controls.Controls.prove`).
        nodes: names of those a pod is awaited on; none where any will do. A control goes to one of them, too.
    """

    name: str
    check: Callable[[Obj | None], Look]
    budget: str = "api"
    events: bool = False
    follows: bool = False
    words: str = ""
    nodes: frozenset[str] = frozenset()

    def __call__(self, obj: Obj | None) -> Look:
        """Look at the object, or at one event."""
        return self.check(obj)

    def __str__(self) -> str:
        return self.name


def is_running_on(nodes: Collection[str], label: str, known: Collection[str] = ()) -> Condition:
    """A pod that runs on one of these nodes (by name); bound to another one is terminal.

    Args:
        nodes: node names, as from :class:`~pvaffinity.topology.Topology`.
        label: says in a message which nodes these are, such as ``in us-east1-c``.
        known: names of all nodes there were when these were chosen. Of a pod on one that joined the cluster later
            nobody can say whether it is right there. Without any, none has joined.
    """
    names = frozenset(nodes)

    def check(obj: Obj | None) -> Look:
        node = None if obj is None else obj["spec"].get("nodeName")
        if node and node not in names:
            joined = known and node not in known
            return Look("terminal", describe(obj), f"node {node} joined the cluster meanwhile" if joined else "")
        return _running(obj)

    return Condition(f"running on a node {label}", check, "start", nodes=names)


def is_scheduled_for(condition: Condition) -> Condition:
    """A pod that a scheduler has bound, on its way to what is awaited next, such as running on some nodes."""
    return replace(is_scheduled, nodes=condition.nodes)


def is_unschedulable_because() -> Condition:
    """A pod that the scheduler has refused because of its volume's affinity.

    A refusal in other words than the usual ones meets the condition as well, but then wants a proof, which the fixture
    ``until`` makes.
    """
    look = _unschedulable(not_yet=UNBOUND)
    return Condition("unschedulable because of its volume", look, "schedule", words=VOLUME_AFFINITY)


def is_affected_since(before: Obj) -> Condition:
    """A pod that is not left alone: other UID, node, phase, start time or containers than before, or being deleted."""

    def identity(pod: Obj) -> dict[str, Any]:
        status = status_of(pod)
        seen = status.get("containerStatuses") or ()
        return {
            "UID": pod["metadata"]["uid"],
            "node": pod["spec"].get("nodeName"),
            "phase": status.get("phase"),
            "start time": status.get("startTime"),
            "deletion": is_leaving(pod),
            "containers": [(c.get("containerID"), c.get("restartCount"), c.get("state")) for c in seen],
        }

    was = identity(before)

    def check(obj: Obj | None) -> Look:
        changed = [what for what, now in identity(obj).items() if now != was[what]] if obj is not None else []
        seen = describe(obj) + (f"; not as before: {', '.join(changed)}" if changed else "")
        return Look("met" if obj is None or changed else "not yet", seen, surroundings(obj))

    return Condition("affected", check, "settle")


def is_ready_statefulset(replicas: int) -> Condition:
    """A StatefulSet with exactly so many pods, all ready, as its controller has last seen it."""

    def check(obj: Obj | None) -> Look:
        status = status_of(obj)
        current = obj is not None and status.get("observedGeneration", 0) >= obj["metadata"].get("generation", 0)
        counts = {status.get("replicas", 0), status.get("readyReplicas", 0)}
        return Look("met" if current and counts == {replicas} else "not yet", describe(obj))

    return Condition(f"ready with {replicas} replicas", check, "start")


def has_event(reason: str, text: str = "", *, uid: str | None = None, budget: str = "mount-event") -> Condition:
    """An event about the object with this reason, whose message ``text`` (a regular expression) finds.

    Args:
        reason: the event's reason, such as ``FailedMount``.
        text: searched for in the message.
        uid: only events about the object with this UID; by default about any of its name.
        budget: the name of the budget to wait for it.
    """

    def check(event: Obj | None) -> Look:
        if event is None:
            return Look("not yet", "no event")
        same = event.get("reason") == reason and re.search(text, event.get("message") or "") is not None
        met = same and uid in (None, event["involvedObject"].get("uid"))
        return Look("met" if met else "not yet", describe(event))

    return Condition(f"told of by the event {reason}" + (f" /{text}/" if text else ""), check, budget, events=True)


def is_refused_by_kubelet() -> Condition:
    """A kubelet's event that it will not mount a volume because of its node affinity.

    Up to 1.37 that is FailedMount on a pod that stays Pending (pkg/volume/util/operationexecutor,
    checkNodeAffinity); KEP-5381 plans to reject the pod instead, with an event of its own. A FailedMount in other words
    meets the condition as well, but then wants a proof, which the fixture ``until`` makes.
    """

    def check(event: Obj | None) -> Look:
        if event is None:
            return Look("not yet", "no event")
        mount = event.get("reason") == "FailedMount" and not re.search(AUTHORISER, event.get("message") or "")
        return Look("met" if mount or event.get("reason") == REJECTED else "not yet", describe(event))

    words = f"{AFFINITY_CHECK}|{REJECTED}"
    return Condition("refused by its kubelet (FailedMount)", check, "mount-event", events=True, words=words)


def replacing(uid: str, condition: Condition) -> Condition:
    """The condition on the *next* object of the name, once the one with this UID is gone (a StatefulSet's pod)."""

    def check(obj: Obj | None) -> Look:
        if obj is None or obj["metadata"]["uid"] == uid:
            return Look("not yet", f"not replaced yet: {describe(obj)}")
        return condition(obj)

    return replace(condition, name=f"replaced and {condition.name}", check=check, follows=True)


def _unschedulable(*, not_yet: str = r"(?!)") -> Callable[[Obj | None], Look]:
    """Refused by the scheduler, in any words but ``not_yet``."""

    def check(obj: Obj | None) -> Look:
        if obj is not None and obj["spec"].get("nodeName"):
            return Look("terminal", describe(obj))
        scheduled = condition_of(obj, "PodScheduled")
        refused = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
        met = refused and re.search(not_yet, scheduled.get("message", "")) is None
        return Look("met" if met else "not yet", describe(obj))

    return check


def _running(obj: Obj | None) -> Look:
    status = status_of(obj)
    phase = status.get("phase")
    if phase in ("Failed", "Succeeded"):
        return Look("terminal", describe(obj), surroundings(obj))
    containers = status.get("containerStatuses") or ()
    up = phase == "Running" and bool(containers) and all("running" in c.get("state", {}) for c in containers)
    return Look("met" if up and not is_leaving(obj) else "not yet", describe(obj), surroundings(obj))


def _creating(obj: Obj | None) -> Look:
    status = status_of(obj)
    if status.get("phase") not in ("Pending", None):
        return Look("terminal", describe(obj), surroundings(obj))
    containers = status.get("containerStatuses") or ()
    reasons = [(c.get("state") or {}).get("waiting", {}).get("reason") for c in containers]
    held = reasons and set(reasons) == {"ContainerCreating"}
    return Look("met" if held else "not yet", describe(obj), surroundings(obj))


def _phase(awaited: str, *terminal: str) -> Callable[[Obj | None], Look]:
    def check(obj: Obj | None) -> Look:
        phase = status_of(obj).get("phase", "")
        if phase in terminal:
            return Look("terminal", describe(obj), surroundings(obj))
        return Look("met" if phase == awaited else "not yet", describe(obj), surroundings(obj))

    return check


def _rejected(obj: Obj | None) -> Literal["met", "not yet"]:
    status = status_of(obj)
    return "met" if status.get("phase") == "Failed" and status.get("reason") == REJECTED else "not yet"


is_bound = Condition("Bound", _phase("Bound", "Failed", "Lost"), "bind")
"""A PersistentVolume or a claim in phase Bound; for a claim the phase is the last thing its binding writes."""

is_available = Condition("Available", _phase("Available", "Failed", "Bound"), "bind")
"""A PersistentVolume that a claim can take."""

is_unschedulable = Condition("unschedulable", _unschedulable(), "schedule")
"""A pod that the scheduler has tried and refused: PodScheduled=False, reason Unschedulable. Bound is terminal."""

is_scheduled = Condition(
    "bound to a node",
    lambda obj: Look("met" if obj and obj["spec"].get("nodeName") else "not yet", describe(obj)),
    "schedule",
)
"""A pod that a scheduler has bound, whether or not the node's kubelet lets it run."""

is_running = Condition("running", _running, "start")
"""A pod in phase Running whose containers all run and that is not being deleted; readiness is not looked at."""

is_waiting_to_start = Condition("held in ContainerCreating", _creating, "mount-event")
"""A Pending pod whose kubelet has taken it on and holds every container back: waiting, reason ContainerCreating.

Told apart from an event: a kubelet writes the status beside its events, and tries a lost write again after 10 s only
(pkg/kubelet/status, syncPeriod).
"""

is_succeeded = Condition("Succeeded", _phase("Succeeded", "Failed"), "start")
"""A pod that ran to its end without an error."""

is_rejected = Condition("rejected by its kubelet", lambda obj: Look(_rejected(obj), describe(obj)), "settle")
"""A pod failed by its kubelet with reason VolumeNodeAffinity, as KEP-5381 plans and no release up to 1.37 does."""

is_gone = Condition(
    "gone", lambda obj: Look("met" if obj is None else "not yet", describe(obj)), "deletion", follows=False
)
"""Deleted, finalizers and all; another object of the same name counts as gone."""
