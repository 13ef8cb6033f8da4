"""What a run found out, as values: tests, behaviours, clusters, and the rule that makes a verdict of them.

The JSON form (``conformance.json``) is for machines and for merging; its ``schema`` names its version. A file may hold
several clusters.
"""

from __future__ import annotations

__all__ = [
    "ENDED_EARLY",
    "BehaviourResult",
    "BehaviourVerdict",
    "ClusterResult",
    "Conformance",
    "Outcome",
    "TestResult",
]

import enum
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pvaffinity.behaviours import BEHAVIOURS, Behaviour
from pvaffinity.errors import UserError
from pvaffinity.paths import write_whole
from pvaffinity.shape import ShapeError, check_fields, from_json, shaped

SCHEMA = "pvaffinity-conformance/1"
_RACE = {"title": str | None, "rounds": int, "seconds": float, "steps": list[dict[str, Any]]}
_STEP = {"offset_ms": float, "measured_ms": float | None, "counts": dict[str, int], "lost": int | None}
ENDED_EARLY = "not run: the session ended early"
"""The reason of a test that was to run and never came to its turn."""


class Outcome(enum.StrEnum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    """The guarantee is broken."""
    NOT_JUDGED = "not judged"
    """Something around the test went wrong, so that nobody can say whether the guarantee holds."""
    UNSUPPORTED = "not supported"
    """This cluster or provider lacks what the test needs."""
    SKIPPED = "skipped"
    """Left out by whoever started the run."""
    XFAILED = "xfailed"
    """A known gap of Kubernetes, there as expected."""
    XPASSED = "xpassed"
    """A known gap of Kubernetes is closed: the expectation must change, so this fails."""

    @property
    def judged(self) -> bool:
        """Whether it says something about Kubernetes."""
        return self not in (Outcome.NOT_JUDGED, Outcome.UNSUPPORTED, Outcome.SKIPPED)

    @classmethod
    def _missing_(cls, value: object) -> Outcome | None:
        return cls.NOT_JUDGED if value == "error" else None  # as files of pvaffinity 0.1 have it


class BehaviourVerdict(enum.StrEnum):
    """What may be said of a behaviour on a cluster."""

    HOLDS = "holds"
    BROKEN = "broken"
    PARTIAL = "partial"
    """What was checked holds, but a core check is missing."""
    UNSUPPORTED = "not supported"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class TestResult:
    """One test on one cluster.

    Attributes:
        id: unique within the cluster.
        title: the guarantee in one sentence, as the test's docstring has it.
        seconds: of the test itself, set-up included.
        reason: why it failed, was skipped, or is expected to fail.
        core: whether the behaviour's verdict is only partial without it.
        first_try: why the first of two tries was not judged; empty where one was enough.
    """

    __test__ = False  # not a test class, whatever pytest makes of the name

    id: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""
    title: str = ""
    core: bool = True
    first_try: str = ""


@dataclass(frozen=True)
class BehaviourResult:
    """All tests of one behaviour on one cluster."""

    name: str
    tests: tuple[TestResult, ...] = ()

    @property
    def verdict(self) -> BehaviourVerdict:
        """Broken by any failure; holds only if everything core was judged; nothing judged is never a pass."""
        outcomes = {test.outcome for test in self.tests}
        if outcomes & {Outcome.FAILED, Outcome.XPASSED}:
            return BehaviourVerdict.BROKEN
        if not outcomes & {Outcome.PASSED, Outcome.XFAILED}:
            return BehaviourVerdict.UNSUPPORTED if outcomes == {Outcome.UNSUPPORTED} else BehaviourVerdict.NOT_RUN
        if any(t.outcome == Outcome.NOT_JUDGED or (t.core and not t.outcome.judged) for t in self.tests):
            return BehaviourVerdict.PARTIAL
        return BehaviourVerdict.HOLDS

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """Tests by outcome; an outcome that did not occur counts 0."""
        return Counter(test.outcome for test in self.tests)

    @property
    def judged(self) -> int:
        """How many tests say something about the behaviour."""
        return sum(test.outcome.judged for test in self.tests)


@dataclass(frozen=True)
class ClusterResult:
    """One cluster: what it is, and what was found on it.

    Attributes:
        provider: such as ``local``.
        kubernetes: the full version, such as ``1.37.2``.
        configuration: such as ``gate-on``.
        gate_wanted: ``on`` or ``off``, what the configuration promises.
        gate_measured: ``on`` or ``off``, or ``unknown``.
        behaviours: in any order; those without tests may be left out.
        started: UTC, ISO 8601.
        seconds: from the start of its first test, set-up included, to the end of its last; of merged runs, the sum.
        races: sweeps as :meth:`pvaffinity.races.Summary.to_dict` has them, each with a ``title``.
        capabilities: name, presence and evidence of what was measured.
        notes: other facts, such as start-up seconds.
        staleness: seconds from the acknowledgement of each update that a check waited for until the scheduler was seen
            to go by it, at most; see :mod:`pvaffinity.report.staleness`.
    """

    provider: str
    kubernetes: str
    configuration: str
    gate_wanted: str
    gate_measured: str
    behaviours: tuple[BehaviourResult, ...]
    started: str = ""
    seconds: float = 0.0
    races: tuple[Mapping[str, Any], ...] = ()
    capabilities: tuple[Mapping[str, Any], ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    staleness: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it the same cluster in two files."""
        return self.provider, self.kubernetes, self.configuration

    @property
    def id(self) -> str:
        """For people: ``1.37.2 gate-on (local)``."""
        return f"{self.kubernetes} {self.configuration} ({self.provider})"

    @property
    def gate_as_wanted(self) -> bool:
        """Whether the server does what its configuration promises; where not, no verdict means what it says.

        A cluster that could not be made has no gate, and so no wrong one.
        """
        return self.gate_measured in (self.gate_wanted, "unknown")

    def behaviour(self, name: str) -> BehaviourResult:
        """A behaviour's tests here; without any, it has not run."""
        return next((b for b in self.behaviours if b.name == name), BehaviourResult(name))

    def applies(self, behaviour: Behaviour) -> bool:
        """Whether there is anything to ask: not, where it needs the gate, the gate is off, and nothing ran."""
        return bool(self.behaviour(behaviour.id).tests) or not (behaviour.needs_gate and self.gate_measured == "off")


@dataclass(frozen=True)
class Conformance:
    """Everything known, from one run or from several.

    Attributes:
        missing: legs of a CI matrix that were expected and have no result, such as ``kind 1.36``.
    """

    suite_version: str
    clusters: tuple[ClusterResult, ...]
    missing: tuple[str, ...] = ()

    def verdicts(self, behaviour: Behaviour) -> list[BehaviourVerdict]:
        """Of a behaviour, on every cluster on which it can be asked for."""
        return [c.behaviour(behaviour.id).verdict for c in self.clusters if c.applies(behaviour)]

    @property
    def judged(self) -> bool:
        """Whether any check on any cluster says something."""
        return any(behaviour.judged for cluster in self.clusters for behaviour in cluster.behaviours)

    def tests(self, *outcomes: Outcome) -> list[TestResult]:
        """Tests that ended so, over all clusters."""
        everywhere = (b for cluster in self.clusters for b in cluster.behaviours)
        return [test for behaviour in everywhere for test in behaviour.tests if test.outcome in outcomes]

    @property
    def broken(self) -> list[tuple[Behaviour, ClusterResult]]:
        """What is broken where, in the order of the summary."""
        return [
            (behaviour, cluster)
            for behaviour in BEHAVIOURS
            for cluster in self.clusters
            if cluster.behaviour(behaviour.id).verdict == BehaviourVerdict.BROKEN
        ]

    @property
    def wrong_gate(self) -> list[ClusterResult]:
        """Clusters whose gate is not what their configuration promises."""
        return [cluster for cluster in self.clusters if not cluster.gate_as_wanted]

    @property
    def holds(self) -> bool:
        """Every behaviour was asked for, and holds on every cluster that supports asking; no leg is missing."""
        asked = [set(self.verdicts(behaviour)) for behaviour in BEHAVIOURS]
        fine = {BehaviourVerdict.HOLDS, BehaviourVerdict.UNSUPPORTED}
        complete = all(asked) and not self.missing and not self.wrong_gate
        return complete and {BehaviourVerdict.HOLDS} <= set().union(*asked) <= fine

    def to_dict(self) -> dict[str, Any]:
        """As JSON. Verdicts are written for readers and worked out anew when read."""
        clusters = []
        for cluster in self.clusters:
            data = asdict(cluster)
            data["behaviours"] = [
                {"name": b.name, "verdict": str(b.verdict), "tests": [asdict(t) for t in b.tests]}
                for b in cluster.behaviours
            ]
            clusters.append(data)
        missing = {"missing": list(self.missing)} if self.missing else {}
        return {"schema": SCHEMA, "suite_version": self.suite_version, **missing, "clusters": clusters}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conformance:
        """Read what :meth:`to_dict` wrote.

        Raises:
            ShapeError: it is something else.
        """
        kinds = {"schema": str, "suite_version": str, "clusters": list[dict[str, Any]], "missing": list[str] | None}
        data = check_fields(kinds, data)
        if data["schema"] != SCHEMA:
            raise ShapeError(f"schema {data['schema']!r} is not {SCHEMA}")
        clusters = tuple(_cluster(cluster, f"clusters[{n}]") for n, cluster in enumerate(data["clusters"]))
        return cls(data["suite_version"], clusters, tuple(data.get("missing") or ()))

    def save(self, path: Path) -> Path:
        """Write it to a file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Conformance:
        """Read a file.

        Raises:
            UserError: it cannot be read or is no conformance result.
        """
        fix = "give it a conformance.json that a run of this suite has written"
        try:
            return cls.from_dict(from_json(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}", fix) from error
        except ValueError as error:
            raise UserError(f"{path} is no conformance result: {error}", fix) from error


def _cluster(data: Mapping[str, Any], where: str) -> ClusterResult:
    """Without the verdicts, which are worked out anew."""
    behaviours = shaped(list[dict[str, Any]], data.get("behaviours"), f"{where}.behaviours")
    plain = [{key: value for key, value in each.items() if key != "verdict"} for each in behaviours]
    made = shaped(ClusterResult, {**data, "behaviours": plain}, where)
    for number, race in enumerate(made.races):
        for step in check_fields(_RACE, race, here := f"{where}.races[{number}]")["steps"]:
            check_fields(_STEP, step, f"{here}.steps")
    for number, capability in enumerate(made.capabilities):
        check_fields({"name": str}, capability, f"{where}.capabilities[{number}]")
    return made
