"""Node affinity of a volume as a value, and an oracle for which nodes it admits.

The oracle mirrors what the scheduler and the kubelet share: ``storage/volume.CheckNodeAffinity`` and
``scheduling/corev1/nodeaffinity`` of k8s.io/component-helpers, with ``pkg/labels.NewRequirement`` of
k8s.io/apimachinery below them. It looks at node labels only, never at node names.
"""

from __future__ import annotations

__all__ = [
    "BETA_TO_GA",
    "HOSTNAME",
    "OPERATORS",
    "REGION",
    "ZONE",
    "Affinity",
    "Requirement",
    "Term",
    "allows",
    "disk_key",
    "in_region",
    "in_zone",
    "on_disk",
    "on_hosts",
    "where",
    "with_beta_keys",
    "with_ga_keys",
]

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"

BETA_TO_GA: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
"""The five key changes that every server accepts, one way only (kubernetes pkg/apis/core/validation, betaToGALabel)."""

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
"""The node selector operators (k8s.io/api core/v1 ``NodeSelectorOperator``)."""

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NAME = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
_LABEL_VALUE = re.compile(rf"{_NAME}?\Z")
_SUBDOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:(?=.{{1,253}}/){_SUBDOMAIN}(?:\.{_SUBDOMAIN})*/)?{_NAME}\Z")


@dataclass(frozen=True)
class Requirement:
    """One entry of ``matchExpressions`` or ``matchFields``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    @property
    def well_formed(self) -> bool:
        """Whether the scheduler can parse it; a term with one that it cannot parse admits no node.

        The API server is more lenient: it takes, for one, ``Gt ["abc"]``.
        """
        count = len(self.values)
        ok = {
            "In": count > 0,
            "NotIn": count > 0,
            "Exists": count == 0,
            "DoesNotExist": count == 0,
            "Gt": count == 1 and _integer(self.values[0]) is not None,
            "Lt": count == 1 and _integer(self.values[0]) is not None,
        }.get(self.operator, False)
        return ok and bool(_LABEL_KEY.match(self.key)) and all(_LABEL_VALUE.match(v) for v in self.values)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it, as ``labels.Requirement.Matches`` has it; False where it is not well formed."""
        if not self.well_formed:
            return False
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        have, want = _integer(value or ""), _integer(self.values[0])
        if have is None or want is None:
            return False
        return have > want if self.operator == "Gt" else have < want

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; ``values`` is left out where there are none."""
        return {"key": self.key, "operator": self.operator, **({"values": list(self.values)} if self.values else {})}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Requirement:
        """The inverse of :meth:`to_dict`."""
        return cls(value["key"], value["operator"], tuple(value.get("values") or ()))

    def __str__(self) -> str:
        return f"{self.key} {self.operator}" + (f" [{', '.join(self.values)}]" if self.values else "")


@dataclass(frozen=True)
class Term:
    """One entry of ``nodeSelectorTerms``: all its requirements must be met."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is admitted.

        An empty term admits no node. ``matchFields`` are parsed but not compared, because the check knows no node name:
        a term of well-formed ``matchFields`` alone admits every node (nodeaffinity.go, ``nodeSelectorTerm.match``).
        """
        if not self.expressions and not self.fields:
            return False
        if not all(f.operator in ("In", "NotIn") and len(f.values) == 1 for f in self.fields):
            return False
        return all(e.matches(labels) for e in self.expressions)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; empty lists are left out."""
        lists = {"matchExpressions": self.expressions, "matchFields": self.fields}
        return {name: [r.to_dict() for r in entries] for name, entries in lists.items() if entries}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Term:
        """The inverse of :meth:`to_dict`."""
        return cls(
            tuple(Requirement.from_dict(r) for r in value.get("matchExpressions") or ()),
            tuple(Requirement.from_dict(r) for r in value.get("matchFields") or ()),
        )

    def __str__(self) -> str:
        return " and ".join(str(r) for r in (*self.expressions, *self.fields)) or "nothing"


@dataclass(frozen=True)
class Affinity:
    """The value of ``spec.nodeAffinity``: one of its terms must match."""

    terms: tuple[Term, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is admitted; without any term, none is."""
        return any(term.matches(labels) for term in self.terms)

    def to_dict(self) -> dict[str, Any]:
        """The value of ``spec.nodeAffinity``, as the API server stores it."""
        return {"required": {"nodeSelectorTerms": [term.to_dict() for term in self.terms]}}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Affinity:
        """Read the value of ``spec.nodeAffinity``."""
        required = value.get("required") or {}
        return cls(tuple(Term.from_dict(term) for term in required.get("nodeSelectorTerms") or ()))

    def __and__(self, other: Affinity) -> Affinity:
        """Both must hold: the requirements of two one-term affinities in one term.

        Raises:
            ValueError: one of them has not exactly one term.
        """
        if len(self.terms) != 1 or len(other.terms) != 1:
            raise ValueError("only affinities of one term can be joined with &; write the terms out")
        left, right = self.terms[0], other.terms[0]
        return Affinity((Term(left.expressions + right.expressions, left.fields + right.fields),))

    def __or__(self, other: Affinity) -> Affinity:
        """One of them must hold: the terms of both."""
        return Affinity(self.terms + other.terms)

    def __str__(self) -> str:
        return " or ".join(str(term) for term in self.terms) or "nothing"


def where(key: str, operator: str, *values: str) -> Affinity:
    """An affinity of one term with one requirement; the operator is not checked, so that refusals can be tested."""
    return Affinity((Term((Requirement(key, operator, values),)),))


def in_zone(*zones: str) -> Affinity:
    """Nodes of these zones."""
    return where(ZONE, "In", *zones)


def in_region(*regions: str) -> Affinity:
    """Nodes of these regions."""
    return where(REGION, "In", *regions)


def on_hosts(*hostnames: str) -> Affinity:
    """Nodes whose *hostname label* is one of these; it need not be the node's name."""
    return where(HOSTNAME, "In", *hostnames)


def disk_key(generation: str) -> str:
    """The node label that says a disk generation can be attached, as in KEP-5381's second story."""
    return f"provider.com/disktype.{generation}"


def on_disk(generation: str) -> Affinity:
    """Nodes that can attach disks of this generation."""
    return where(disk_key(generation), "In", "available")


def allows(node_affinity: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a stored ``spec.nodeAffinity`` admits a node; absent, or without ``required``, it admits every node."""
    if not node_affinity or node_affinity.get("required") is None:
        return True
    return Affinity.from_dict(node_affinity).matches(labels)


def with_ga_keys(affinity: Affinity) -> Affinity:
    """The same affinity with every beta key replaced by its GA key: an update that every server accepts."""
    return _rename(affinity, BETA_TO_GA)


def with_beta_keys(affinity: Affinity) -> Affinity:
    """The same affinity with GA keys replaced by their beta keys: the way back, which no gate-off server accepts."""
    return _rename(affinity, {ga: beta for beta, ga in BETA_TO_GA.items()})


def _rename(affinity: Affinity, names: Mapping[str, str]) -> Affinity:
    def renamed(term: Term) -> Term:
        return replace(term, expressions=tuple(replace(e, key=names.get(e.key, e.key)) for e in term.expressions))

    return Affinity(tuple(renamed(term) for term in affinity.terms))


def _integer(text: str) -> int | None:
    """A 64-bit decimal as Go's ``strconv.ParseInt(text, 10, 64)`` reads it, else None."""
    if not _INTEGER.match(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
