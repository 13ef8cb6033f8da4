"""The short forms: a headline, a Markdown table, a badge."""

from __future__ import annotations

__all__ = ["badge", "count_text", "headline", "matrix", "overall"]

from collections import Counter
from typing import Any

from pvaffinity.behaviours import BEHAVIOURS, Behaviour
from pvaffinity.report.model import BehaviourResult, BehaviourVerdict, ClusterResult, Conformance, Outcome

SIGNS = {
    BehaviourVerdict.HOLDS: "✅",
    BehaviourVerdict.BROKEN: "❌",
    BehaviourVerdict.PARTIAL: "🟡",
    BehaviourVerdict.UNSUPPORTED: "➖",
    BehaviourVerdict.NOT_RUN: "⚪",
}


def headline(result: Conformance) -> str:
    """The answer in one sentence; what is wrong comes before what is right, and what is missing at the end."""
    answer = _answer(result)
    return f"{answer} No result from {_and(list(result.missing))}." if result.missing else answer


def _answer(result: Conformance) -> str:
    if result.wrong_gate:
        cluster = result.wrong_gate[0]
        return (
            f"The gate is {cluster.gate_measured} on {cluster.id}, though it should be {cluster.gate_wanted}:"
            " its other verdicts say nothing."
        )
    if result.broken:
        behaviours = list(dict.fromkeys(behaviour.title for behaviour, _ in result.broken))
        clusters = list(dict.fromkeys(cluster.id for _, cluster in result.broken))
        where = clusters[0] if len(clusters) == 1 else f"{len(clusters)} of {len(result.clusters)} clusters"
        open_ends = "" if _all_judged(result) else " Not everything else was judged."
        return f"Broken: {', '.join(behaviours)} on {where}.{open_ends}"
    counts = Counter(overall(result, behaviour) for behaviour in BEHAVIOURS)
    held = counts[BehaviourVerdict.HOLDS]
    if not result.judged:
        return "Nothing was judged: no check ran to its end."
    where = _clusters(result)
    if held == len(BEHAVIOURS):
        return f"All {held} behaviours hold on {where}."
    gated = sum(not result.verdicts(behaviour) for behaviour in BEHAVIOURS)
    counts[BehaviourVerdict.NOT_RUN] -= gated
    rest = [f"{counts[v]} {v}" for v in BehaviourVerdict if v != BehaviourVerdict.HOLDS and counts[v]]
    rest += [f"{gated} need the gate"] if gated else []
    return f"{held} of {len(BEHAVIOURS)} behaviours hold on {where}; {', '.join(rest)}."


def matrix(result: Conformance) -> str:
    """Behaviours by clusters, as Markdown."""
    lines = [headline(result), ""]
    lines += ["| | " + " | ".join(f"{c.kubernetes} {c.configuration}<br>{c.provider}" for c in result.clusters) + " |"]
    lines += ["|---" * (len(result.clusters) + 1) + "|"]
    gates = [
        c.gate_measured if c.gate_as_wanted else f"❌ {c.gate_measured}, not {c.gate_wanted}" for c in result.clusters
    ]
    lines += ["| *gate, measured* | " + " | ".join(gates) + " |"]
    for behaviour in BEHAVIOURS:
        cells = " | ".join(_cell(cluster, behaviour) for cluster in result.clusters)
        lines.append(f"| **{behaviour.title}** | {cells} |")
    failures = [
        f"- {cluster.id}, {behaviour.title}: `{test.id}`: {_first_line(test.reason)}"
        for behaviour, cluster in result.broken
        for test in cluster.behaviour(behaviour.id).tests
        if test.outcome in (Outcome.FAILED, Outcome.XPASSED)
    ]
    if failures:
        lines += ["", "What is broken:", "", *failures]
    lines += ["", " · ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items()) + " · — needs the gate"]
    return "\n".join(lines) + "\n"


def badge(result: Conformance) -> dict[str, Any]:
    """A badge in the endpoint schema of shields.io; bright only where every behaviour could be asked for and holds."""
    verdicts = [overall(result, behaviour) for behaviour in BEHAVIOURS]
    held = verdicts.count(BehaviourVerdict.HOLDS)
    if result.wrong_gate or BehaviourVerdict.BROKEN in verdicts:
        broken = verdicts.count(BehaviourVerdict.BROKEN)
        message, colour = (f"{broken} broken" if broken else "wrong gate"), "red"
    elif not result.judged:
        message, colour = "nothing run", "lightgrey"
    else:
        whole = "brightgreen" if held == len(verdicts) else "green"
        message, colour = f"{held}/{len(verdicts)} hold", whole if result.holds else "yellow"
    versions = list(dict.fromkeys(".".join(c.kubernetes.split(".")[:2]) for c in result.clusters))
    if versions and colour != "lightgrey":
        message += f" on {versions[0]}" + (f"–{versions[-1]}" if len(versions) > 1 else "")
    return {"schemaVersion": 1, "label": "mutable PV affinity", "message": message, "color": colour}


def count_text(behaviour: BehaviourResult) -> str:
    """How many checks the verdict rests on, and what else there was."""
    counts = behaviour.counts
    good = counts[Outcome.PASSED] + counts[Outcome.XFAILED]
    parts = [f"{good} of {behaviour.judged} checks" if good < behaviour.judged else f"{good} checks"]
    if good == 1 == behaviour.judged:
        parts = ["1 check"]
    words = {
        Outcome.XFAILED: "known gap",
        Outcome.NOT_JUDGED: "not judged",
        Outcome.UNSUPPORTED: "not supported",
        Outcome.SKIPPED: "skipped",
    }
    parts += [f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome]]
    return ", ".join(parts)


def _cell(cluster: ClusterResult, behaviour: Behaviour) -> str:
    if not cluster.applies(behaviour):
        return "—"
    found = cluster.behaviour(behaviour.id)
    text = f"{SIGNS[found.verdict]} {found.verdict}"
    return f"{text} ({count_text(found)})" if found.tests else text


def overall(result: Conformance, behaviour: Behaviour) -> BehaviourVerdict:
    """The worst verdict of a behaviour over all clusters that can be asked; one that cannot answer does not count."""
    worst = (
        BehaviourVerdict.BROKEN,
        BehaviourVerdict.PARTIAL,
        BehaviourVerdict.NOT_RUN,
        BehaviourVerdict.HOLDS,
        BehaviourVerdict.UNSUPPORTED,
    )
    verdicts = result.verdicts(behaviour)
    return next((verdict for verdict in worst if verdict in verdicts), BehaviourVerdict.NOT_RUN)


def _all_judged(result: Conformance) -> bool:
    unjudged = {BehaviourVerdict.PARTIAL, BehaviourVerdict.NOT_RUN}
    return not any(unjudged & set(result.verdicts(behaviour)) for behaviour in BEHAVIOURS)


def _clusters(result: Conformance) -> str:
    """The clusters in few words: their versions, and which configurations."""
    versions = list(dict.fromkeys(c.kubernetes for c in result.clusters))
    configurations = list(dict.fromkeys(c.configuration for c in result.clusters))
    return f"Kubernetes {_and(versions)} ({', '.join(configurations)})"


def _and(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _first_line(text: str) -> str:
    return next((line.strip().replace("|", "\\|") for line in text.splitlines() if line.strip()), "no message")[:300]
