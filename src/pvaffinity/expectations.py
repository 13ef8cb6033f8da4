"""What the API server is expected to answer: every change of a node affinity the suite makes, and its outcome.

One table, (change × gate × volume source) → outcome, derived from k8s.io/kubernetes
``pkg/apis/core/validation/validation.go`` (ValidatePersistentVolume, validatePvNodeAffinity), the same in 1.34 to 1.37
but for the gate.
"""

from __future__ import annotations

__all__ = ["CHANGES", "INVALID_SHAPES", "Change", "InvalidShape", "expected", "expected_shape"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pvaffinity.affinity import (
    BETA_TO_GA,
    HOSTNAME,
    REGION,
    ZONE,
    Affinity,
    disk_key,
    in_region,
    in_zone,
    on_disk,
    on_hosts,
    where,
    with_ga_keys,
)
from pvaffinity.errors import Cause
from pvaffinity.objects import Obj
from pvaffinity.outcomes import IMMUTABLE, Accepted, Outcome, Refused

LOCAL_NEEDS_AFFINITY = Cause("FieldValueRequired", "spec.nodeAffinity")
"""A ``local`` volume may not be without a node affinity, whatever the gate."""


@dataclass(frozen=True)
class Change:
    """One update of ``spec.nodeAffinity``.

    Attributes:
        name: part of the test id.
        before: the stored value; None where there is none.
        after: the value written; None clears the field.
        gated: whether only the gate makes it legal; the others are legal on every server.
        sources: the kinds of volume it is tried on. A rename of keys is decided by the keys alone, and cannot be taken
            back with the gate off, so that it costs a volume each time: two kinds stand for all.
    """

    name: str
    before: Affinity | None
    after: Affinity | None
    gated: bool = True
    sources: tuple[str, ...] = ("hostPath", "local", "csi", "nfs")

    def applies_to(self, source: str) -> bool:
        """Whether it is tried on this source; a ``local`` volume is never without an affinity to begin with."""
        return source in self.sources and (self.before is not None or source != "local")


_B, _C = in_zone("us-east1-b"), in_zone("us-east1-c")
_BETA_ZONE = where("failure-domain.beta.kubernetes.io/zone", "In", "us-east1-b")
_ALL_BETA = where("failure-domain.beta.kubernetes.io/zone", "In", "us-east1-b") & where(
    "failure-domain.beta.kubernetes.io/region", "In", "us-east1"
)
_HALF_BETA = _B & where("failure-domain.beta.kubernetes.io/region", "In", "us-east1")
_TWO = ("hostPath", "local")
_FORTY_HOSTS = Affinity(tuple(on_hosts(f"host-{n}").terms[0] for n in range(40)))

CHANGES: tuple[Change, ...] = (
    Change("zone-to-region", _B, in_region("us-east1")),
    Change("other-zone", _B, _C),
    Change("gen1-to-gen2", on_disk("gen1"), on_disk("gen2")),
    Change("add-term", _B, _B | _C),
    Change("remove-term", _B | _C, _B),
    Change("reorder-terms", _B | _C, _C | _B),
    Change("reorder-requirements", _B & on_disk("gen1"), on_disk("gen1") & _B),
    Change("add-requirement", _B, _B & on_disk("gen1")),
    Change("add-value", _B, in_zone("us-east1-b", "us-east1-c")),
    Change("reorder-values", in_zone("us-east1-b", "us-east1-c"), in_zone("us-east1-c", "us-east1-b")),
    Change("operator-in-to-notin", _B, where(ZONE, "NotIn", "us-east1-b")),
    Change("operator-in-to-exists", _B, where(ZONE, "Exists")),
    Change("forty-hosts-plus-one", _FORTY_HOSTS, _FORTY_HOSTS | on_hosts("host-40")),
    Change("clear", _B, None),
    Change("beta-to-ga-and-other-value", _BETA_ZONE, _C),
    Change("ga-to-beta", _B, _BETA_ZONE),
    Change("set-where-unset", None, _B, gated=False),
    Change("no-change", _B, _B, gated=False),
    Change("beta-to-ga-two-keys", _ALL_BETA, with_ga_keys(_ALL_BETA), gated=False, sources=_TWO),
    Change("beta-to-ga-one-of-two-keys", _ALL_BETA, _HALF_BETA, gated=False, sources=_TWO),
    *(
        Change(f"beta-to-ga-{ga.rsplit('/', 1)[1]}", where(beta, "In", "x"), where(ga, "In", "x"), False, _TWO)
        for beta, ga in BETA_TO_GA.items()
    ),
)  # fmt: skip
"""Every change of the immutability checks."""


def expected(change: Change, *, gate: bool, source: str) -> Outcome:
    """The outcome of a change on a server with or without the gate, for a volume of this source."""
    if change.after is None and source == "local":
        always = Refused(422, "Invalid", frozenset({LOCAL_NEEDS_AFFINITY}))
        return always if gate else _both(always)
    if change.gated and not gate:
        return IMMUTABLE
    return Accepted({})


def _both(refused: Refused) -> Refused:
    return Refused(refused.code, refused.reason, refused.causes | IMMUTABLE.causes)


@dataclass(frozen=True)
class InvalidShape:
    """A value of ``spec.nodeAffinity`` that no server takes, and the causes every server names."""

    name: str
    value: Mapping[str, Any] = field(hash=False)
    causes: frozenset[Cause]


_TERMS = "spec.nodeAffinity.required.nodeSelectorTerms"


def _terms(*terms: Obj) -> Obj:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def _expression(key: str, operator: str, *values: str) -> Obj:
    return _terms({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def _shape(name: str, value: Obj, *causes: tuple[str, str]) -> InvalidShape:
    return InvalidShape(name, value, frozenset(Cause(reason, path) for reason, path in causes))


_FIRST = f"{_TERMS}[0].matchExpressions[0]"

INVALID_SHAPES: tuple[InvalidShape, ...] = (
    _shape("no-required", {}, ("FieldValueRequired", "spec.nodeAffinity.required")),
    _shape("no-terms", {"required": {"nodeSelectorTerms": []}}, ("FieldValueRequired", _TERMS)),
    _shape("unknown-operator", _expression(ZONE, "Near", "us-east1-b"), ("FieldValueInvalid", f"{_FIRST}.operator")),
    _shape("in-without-values", _expression(ZONE, "In"), ("FieldValueRequired", f"{_FIRST}.values")),
    _shape(
        "exists-with-values", _expression(ZONE, "Exists", "us-east1-b"), ("FieldValueForbidden", f"{_FIRST}.values")
    ),
    _shape("gt-with-two-values", _expression("disk.gen", "Gt", "1", "2"), ("FieldValueRequired", f"{_FIRST}.values")),
    _shape("key-is-no-label-name", _expression("not a label", "Exists"), ("FieldValueInvalid", f"{_FIRST}.key")),
    _shape(
        "value-is-no-label-value",
        _expression(REGION, "In", "us east"),
        ("FieldValueInvalid", f"{_FIRST}.values[0]"),
    ),
    _shape(
        "field-selector-of-another-key",
        _terms({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["x"]}]}),
        ("FieldValueInvalid", f"{_TERMS}[0].matchFields[0].key"),
    ),
    _shape(
        "second-term-is-wrong",
        _terms(
            {"matchExpressions": [{"key": HOSTNAME, "operator": "Exists"}]},
            {"matchExpressions": [{"key": disk_key("gen1"), "operator": "In"}]},
        ),
        ("FieldValueRequired", f"{_TERMS}[1].matchExpressions[0].values"),
    ),
)
"""Shapes that validation refuses with the gate on; with it off the immutability cause comes on top."""


def expected_shape(shape: InvalidShape, *, gate: bool) -> Refused:
    """The refusal of an invalid shape."""
    refused = Refused(422, "Invalid", shape.causes)
    return refused if gate else _both(refused)
