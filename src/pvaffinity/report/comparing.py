"""Comparing clusters: the same check on the same release and configuration ends the same, whoever provides the cluster.

Where two providers disagree, one of them is no faithful Kubernetes, or the check looks at more than Kubernetes.
"""

from __future__ import annotations

__all__ = ["Comparison", "Difference", "compare"]

from collections.abc import Mapping
from dataclasses import dataclass

from pvaffinity.report.model import ENDED_EARLY, ClusterResult, Conformance, Outcome, TestResult

_NOT_ASKED = (Outcome.UNSUPPORTED, Outcome.SKIPPED)


@dataclass(frozen=True)
class Difference:
    """One check that did not end the same everywhere.

    Attributes:
        where: minor release and configuration, such as ``1.37 gate-on``.
        test: its id.
        results: by what provides the cluster, such as ``local``.
    """

    where: str
    test: str
    results: Mapping[str, TestResult]

    def __str__(self) -> str:
        lines = [f"{name}: {t.outcome}{_why(t)}" for name, t in self.results.items()]
        return "\n  ".join([f"{self.where}  {self.test}", *lines])


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    Attributes:
        shared: how many checks were judged on more than one cluster.
        differences: those of them that ended differently. A check that could not be judged on one of the clusters,
            because something around it went wrong or the session ended early, is a difference.
        unshared: checks that only one cluster was asked: elsewhere they are not supported, were left out, or unknown.
    """

    shared: int
    differences: tuple[Difference, ...]
    unshared: tuple[Difference, ...]


def compare(result: Conformance) -> Comparison:
    """Compare all clusters of the same minor release and configuration, check by check."""
    groups: dict[str, list[ClusterResult]] = {}
    for cluster in result.clusters:
        minor = ".".join(cluster.kubernetes.removeprefix("v").split(".")[:2])
        groups.setdefault(f"{minor} {cluster.configuration}", []).append(cluster)
    shared, differences, unshared = 0, [], []
    for where, clusters in groups.items():
        if len(clusters) < 2:
            continue
        names = _names(clusters)
        found: dict[str, dict[str, TestResult]] = {}
        for name, cluster in zip(names, clusters, strict=True):
            for behaviour in cluster.behaviours:
                for test in behaviour.tests:
                    found.setdefault(test.id, {})[name] = test
        for test_id, results in found.items():
            asked = {name: t for name, t in results.items() if t.outcome not in _NOT_ASKED or t.reason == ENDED_EARLY}
            if len(asked) < 2:
                if asked:
                    unshared.append(Difference(where, test_id, results))
                continue
            shared += 1
            if len({t.outcome for t in asked.values()}) > 1:
                differences.append(Difference(where, test_id, asked))
    return Comparison(shared, tuple(differences), tuple(unshared))


def _names(clusters: list[ClusterResult]) -> list[str]:
    """What tells the clusters of a group apart: the provider, with the patch release where one provider has several."""
    providers = [cluster.provider for cluster in clusters]
    return [p if providers.count(p) == 1 else f"{p} {c.kubernetes}" for p, c in zip(providers, clusters, strict=True)]


def _why(test: TestResult) -> str:
    lines = test.reason.strip().splitlines()
    return f": {lines[0]}" if lines and test.outcome != Outcome.PASSED else ""
