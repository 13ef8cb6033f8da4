"""The behaviours the suite reports on: what each one promises, in the order of the summary."""

from __future__ import annotations

__all__ = ["BEHAVIOURS", "Behaviour"]

from dataclasses import dataclass


@dataclass(frozen=True)
class Behaviour:
    """One thing a reader wants to know about a cluster.

    Attributes:
        id: what ``@pytest.mark.behaviour(...)`` names.
        title: a row of the summary.
        question: the question a verdict answers.
        needs_gate: whether there is nothing to ask where the gate is off.
    """

    id: str
    title: str
    question: str
    needs_gate: bool = False


BEHAVIOURS: tuple[Behaviour, ...] = (
    Behaviour("gate", "Gate state", "Does the API server behave as the configuration says?"),
    Behaviour(
        "immutability",
        "Immutability and validation",
        "Are changes refused with the gate off and validated with it on, whichever way they come?",
    ),
    Behaviour(
        "relaxing",
        "Relaxing zone to region",
        "Do waiting pods get in, do running pods notice nothing, does every binding stay?",
        needs_gate=True,
    ),
    Behaviour(
        "generations",
        "Disk generation swap",
        "Do new pods follow the volume to nodes of the new generation, and are running ones left alone?",
        needs_gate=True,
    ),
    Behaviour(
        "io",
        "Uninterrupted I/O",
        "Does a running container go on reading and writing, without a gap, and is its data there afterwards?",
        needs_gate=True,
    ),
    Behaviour("rbac", "RBAC", "Who is denied, and what is the least privilege that suffices?"),
    Behaviour(
        "race",
        "Tightening race",
        "Does no pod run on a node its volume had lost before the pod was bound, and can a stranded pod be recovered?",
        needs_gate=True,
    ),
    Behaviour(
        "rollback",
        "Enablement and rollback",
        "Does a changed affinity survive the gate being turned off, and does turning it on suffice for old volumes?",
        needs_gate=True,
    ),
    Behaviour(
        "restart",
        "Scheduler restart",
        "Does a starting scheduler place pods by an affinity that was changed while none ran?",
        needs_gate=True,
    ),
)
