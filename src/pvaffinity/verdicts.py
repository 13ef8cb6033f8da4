"""Judging a recorded race between a volume's update and a pod's creation: a history in, a verdict out, nothing else.

A history says who did what when; :func:`judge` is a pure function of it, so a saved history can be judged again later,
elsewhere, and by better rules. What cannot be known is *unknown*, which is not a pass.

Order is taken from resourceVersions, not from clocks. The API server stores every kind in one etcd, whose revisions are
one global sequence (etcd.io/docs/latest/learning/api_guarantees; k8s.io/apiserver pkg/storage/etcd3 makes the object's
``mod_revision`` its resourceVersion), so the version of a pod's binding and the version of a volume's update can be
compared. A cluster that keeps kinds in different stores breaks that; the clock's order is therefore held against it.

Two kinds of *unknown* accuse nobody, and so do not count: the end of a round was not awaited any longer, because the
machine was too slow; or an answer to one of our own requests was lost. Neither is a pass, and such a round is no
evidence either.
"""

from __future__ import annotations

__all__ = ["Binding", "Fate", "History", "Judgement", "Verdict", "Warned", "Write", "judge"]

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pvaffinity.affinity import allows
from pvaffinity.shape import check_fields, shaped

REJECTED = "VolumeNodeAffinity"
"""Reason of a pod that the kubelet rejects for its volume's affinity (KEP-5381; in no release up to 1.37)."""


class Verdict(enum.StrEnum):
    """What became of a pod whose volume moved away while it was being created."""

    KEPT = "kept"
    """It runs where its volume allowed it when it was bound."""
    PENDING = "pending"
    """The scheduler found no node for it; nothing was bound."""
    STRANDED = "stranded"
    """It was bound to a node the volume has lost, and the kubelet did not let it run."""
    ESCAPED = "escaped"
    """It ran on a node that the volume, at the moment of the binding, did not allow: the guarantee is broken."""
    UNKNOWN = "unknown"
    """The history does not say. Never a pass."""


@dataclass(frozen=True)
class Write:
    """One request of ours, in nanoseconds of a monotonic clock; None where no answer came."""

    sent: int
    acknowledged: int | None = None
    resource_version: int | None = None


@dataclass(frozen=True)
class Binding:
    """The pod's ``spec.nodeName`` and the version of the pod that first had it; None where a watch was interrupted."""

    node: str
    resource_version: int | None = None


@dataclass(frozen=True)
class Warned:
    """A Warning event about the pod."""

    reason: str
    message: str

    @property
    def refuses_affinity(self) -> bool:
        """Whether it says that the node may not mount the volume.

        A kubelet can fail to mount for other reasons first, and tries again: just after the binding the Node authoriser
        may not yet let it read the claim ("no relationship found between node and this object").
        """
        return self.reason == "FailedMount" and "NodeAffinity" in self.message


@dataclass(frozen=True)
class Fate:
    """The pod as it was last seen.

    Attributes:
        phase: ``status.phase``.
        ran: whether any of its containers was ever seen to have started.
        reason: ``status.reason``, set when the kubelet rejects a pod.
        unschedulable: condition PodScheduled=False with reason Unschedulable.
        deleted: somebody deleted it before we had seen the end.
    """

    phase: str = ""
    ran: bool = False
    reason: str = ""
    unschedulable: bool = False
    deleted: bool = False


@dataclass(frozen=True)
class History:
    """One round, from start to end.

    Attributes:
        name: of the round; volume, claim and pod bear it.
        aimed_ms: the offset that was aimed at; what was hit is :attr:`offset_ms`.
        update: of the volume's ``spec.nodeAffinity`` from ``before`` to ``after``.
        creation: of the pod.
        before: value of ``spec.nodeAffinity`` until the update.
        after: value since.
        stored: value at the end.
        nodes: every node's labels, as far as the two affinities look at them.
        nodes_unchanged: whether those labels were the same at the end.
        settled: whether the pod was watched until nothing more was to come; False where patience ended before that.
    """

    name: str
    aimed_ms: float
    update: Write
    creation: Write
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    stored: Mapping[str, Any] | None
    nodes: Mapping[str, Mapping[str, str]]
    binding: Binding | None = None
    events: tuple[Warned, ...] = ()
    fate: Fate = field(default_factory=Fate)
    nodes_unchanged: bool = True
    settled: bool = True

    @property
    def offset_ms(self) -> float | None:
        """Pod creation sent, minus update acknowledged, in milliseconds; None where no acknowledgement came."""
        if self.update.acknowledged is None:
            return None
        return (self.creation.sent - self.update.acknowledged) / 1e6

    @property
    def lost(self) -> bool:
        """Whether the pod was bound to a node that ``before`` allows and ``after`` does not."""
        labels = self.nodes.get(self.binding.node) if self.binding else None
        return labels is not None and allows(self.before, labels) and not allows(self.after, labels)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; :meth:`from_dict` is the way back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ShapeError: it is something else.
        """
        made = shaped(cls, data)
        for name in ("before", "after", "stored"):
            _check_affinity(getattr(made, name), name)
        return made


def _check_affinity(value: Mapping[str, Any] | None, where: str) -> None:
    """A value of ``spec.nodeAffinity`` as far as judging reads it."""
    required = check_fields({"required": dict[str, Any] | None}, value or {}, where).get("required") or {}
    terms = check_fields({"nodeSelectorTerms": list[dict[str, Any]] | None}, required, f"{where}.required")
    for term in terms.get("nodeSelectorTerms") or ():
        for name in ("matchExpressions", "matchFields"):
            for each in check_fields({name: list[dict[str, Any]] | None}, term, where).get(name) or ():
                check_fields({"key": str, "operator": str, "values": list[str] | None}, each, f"{where}.{name}")


@dataclass(frozen=True)
class Judgement:
    """A verdict and its reason in one sentence.

    Attributes:
        verdict: what became of the pod.
        why: the reason.
        counts: False for an *unknown* that accuses nobody: the end was not awaited, or an answer of ours was lost.
    """

    verdict: Verdict
    why: str
    counts: bool = True

    def __str__(self) -> str:
        return f"{self.verdict}: {self.why}"


def judge(history: History) -> Judgement:
    """Say what became of the pod. Pure: the same history always gets the same verdict."""
    doubt = _doubt(history)
    if doubt:
        return Judgement(Verdict.UNKNOWN, doubt)
    found = _fate(history)
    lost = _lost_answer(history)
    if lost and found.verdict != Verdict.ESCAPED:  # an escape that is certain all the same is one
        return Judgement(Verdict.UNKNOWN, lost, counts=False)
    return found


def _fate(history: History) -> Judgement:
    if history.binding is None:
        return _unbound(history)
    node = history.binding.node
    labels = history.nodes.get(node)
    if labels is None:
        return Judgement(Verdict.UNKNOWN, f"bound to {node}, a node whose labels were not recorded")
    allowed_before, allowed_after = allows(history.before, labels), allows(history.after, labels)
    fate = history.fate
    if fate.ran:
        order = _bound_after_update(history)
        if allowed_before == allowed_after:
            allowed = allowed_after
        elif order is None:
            return Judgement(Verdict.UNKNOWN, f"ran on {node}, and whether it was bound before the update is not known")
        else:
            allowed = allowed_after if order else allowed_before
        when = {True: "after", False: "before", None: "at an unknown time around"}[order]
        versions = f"binding rv {history.binding.resource_version}, update rv {history.update.resource_version}"
        if allowed:
            return Judgement(Verdict.KEPT, f"runs on {node}, allowed when it was bound, {when} the update ({versions})")
        return Judgement(
            Verdict.ESCAPED,
            f"ran on {node}, which the volume did not allow when it was bound, {when} the update ({versions})",
        )
    if fate.deleted:
        return Judgement(Verdict.UNKNOWN, f"deleted by somebody while bound to {node} and not running")
    if allowed_after:
        return _open(history, f"bound to {node}, which the volume allows, but was not seen running: {fate.phase}")
    if fate.phase == "Failed" and fate.reason == REJECTED:
        return Judgement(Verdict.STRANDED, f"bound to {node}, which the volume has lost; the kubelet rejected the pod")
    refused = [event for event in history.events if event.refuses_affinity]
    if refused:
        return Judgement(Verdict.STRANDED, f"bound to {node}, which the volume has lost: {refused[-1].message.strip()}")
    return _open(history, f"bound to {node}, which the volume has lost; not running, but no kubelet has said why")


def _unbound(history: History) -> Judgement:
    fate = history.fate
    if fate.deleted:
        return Judgement(Verdict.UNKNOWN, "deleted by somebody before it was bound")
    if fate.ran:
        return Judgement(Verdict.UNKNOWN, "ran, but no binding was seen")
    if fate.unschedulable:
        return Judgement(Verdict.PENDING, "no node was found for it")
    return _open(history, "not bound, and the scheduler had not said why when it was last seen")


def _open(history: History, why: str) -> Judgement:
    """Unknown because the end is missing: no fault of anybody's where it was not awaited any longer."""
    if history.settled:
        return Judgement(Verdict.UNKNOWN, why)
    return Judgement(Verdict.UNKNOWN, f"{why}; not awaited any longer", counts=False)


def _lost_answer(history: History) -> str | None:
    for what, write in (("update", history.update), ("pod's creation", history.creation)):
        if write.acknowledged is None or write.resource_version is None:
            return f"the {what} was never acknowledged: the answer was lost"
    return None


def _doubt(history: History) -> str | None:
    """What makes a history worthless, whatever the pod did."""
    if not history.nodes_unchanged:
        return "node labels were changed during the race"
    update, creation = history.update, history.creation
    unwritten = update.acknowledged is None and history.stored == history.before  # the request may have been lost
    if history.stored != history.after and not unwritten:
        return "the volume's affinity at the end is not the one we wrote: somebody else changed it"
    if update.acknowledged is None or creation.acknowledged is None:
        return None
    if update.resource_version is None or creation.resource_version is None:
        return None
    update_first = update.acknowledged < creation.sent
    creation_first = creation.acknowledged < update.sent
    by_version = update.resource_version < creation.resource_version
    if (update_first and not by_version) or (creation_first and by_version):
        return "clock and resourceVersions contradict each other: this server's versions are not one sequence"
    return None


def _bound_after_update(history: History) -> bool | None:
    """Whether the binding was stored after the update; None where that is not known."""
    assert history.binding is not None
    update, creation = history.update.resource_version, history.creation.resource_version
    if update is None:
        return None
    if history.binding.resource_version is not None:
        return history.binding.resource_version > update
    return True if creation is not None and creation > update else None  # a binding is always younger than its pod
