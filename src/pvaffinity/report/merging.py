"""Putting several runs together: the legs of a CI matrix, or a run and the repetition of a part of it."""

from __future__ import annotations

__all__ = ["merge"]

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.report.model import ENDED_EARLY, BehaviourResult, ClusterResult, Conformance, Outcome, TestResult


def merge(files: Sequence[Path], *, expected: Iterable[tuple[str, str]] = ()) -> Conformance:
    """Read ``conformance.json`` files as one.

    Of two results of a test on a cluster the later counts, unless it did not run the later time: repeating a part does
    not unsay the rest. Clusters come out by version (numerically), then configuration and provider. Of the ``expected``
    legs, provider and minor version each, those without a cluster are named as missing.

    Raises:
        UserError: there is none, or one of them is no conformance result.
    """
    if not files:
        raise UserError("there is no conformance result to report on", "run the suite first: pytest suites")
    results = [Conformance.load(path) for path in files]
    clusters: dict[tuple[str, str, str], ClusterResult] = {}
    for cluster in sorted((c for r in results for c in r.clusters), key=lambda c: c.started):
        known = clusters.get(cluster.key)
        clusters[cluster.key] = _join(known, cluster) if known else cluster
    versions = sorted({result.suite_version for result in results})
    found = {(c.provider, ".".join(c.kubernetes.split(".")[:2])) for c in clusters.values()}
    missing = tuple(f"{provider} {minor}" for provider, minor in expected if (provider, minor) not in found)
    return Conformance(", ".join(versions), tuple(sorted(clusters.values(), key=_order)), missing)


def _join(old: ClusterResult, new: ClusterResult) -> ClusterResult:
    behaviours = []
    for name in dict.fromkeys(b.name for b in (*old.behaviours, *new.behaviours)):
        tests = {test.id: test for test in old.behaviour(name).tests}
        later = new.behaviour(name).tests
        tests |= {test.id: test for test in later if _ran(test) or test.id not in tests}
        behaviours.append(BehaviourResult(name, tuple(tests.values())))
    races = {race.get("title"): race for race in (*old.races, *new.races)}
    capabilities = {c.get("name"): c for c in (*old.capabilities, *new.capabilities)}
    return replace(
        new,
        behaviours=tuple(behaviours),
        started=old.started,
        seconds=old.seconds + new.seconds,
        races=tuple(races.values()),
        capabilities=tuple(capabilities.values()),
        notes={**old.notes, **new.notes},
        staleness=old.staleness + new.staleness,
    )


def _ran(test: TestResult) -> bool:
    return test.outcome != Outcome.SKIPPED and test.reason != ENDED_EARLY


def _order(cluster: ClusterResult) -> tuple[list[tuple[int, str]], str, str]:
    parts = cluster.kubernetes.removeprefix("v").replace("-", ".").split(".")
    version = [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
    return version, cluster.configuration, cluster.provider
