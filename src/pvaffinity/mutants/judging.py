"""What the suite made of a mutant: a conformance result in, a verdict out, nothing else."""

from __future__ import annotations

__all__ = ["Judgement", "Verdict", "judge"]

import enum
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pvaffinity.mutants.catalogue import UNJUDGED, Mutant
from pvaffinity.report.model import Conformance, Outcome, TestResult

_RED = (Outcome.FAILED, Outcome.XPASSED)
_BEYOND_LOCAL = "io"  # the behaviour that the local provider never supports: it has no real containers
_DESELECTED = "deselected"


class Verdict(enum.StrEnum):
    """What a mutant shows of the suite."""

    KILLED = "killed"
    """A check of the broken promise is red, and nothing else went wrong without a reason."""
    GREEN = "green"
    """A harmless change accuses nobody."""
    SURVIVED = "survived"
    """The promise is broken and no check of it says so."""
    BLIND = "not seen, as known"
    """The same, and the catalogue says why."""
    SEEN = "seen after all"
    """The catalogue says that the suite cannot see it, and it does: remove ``survives`` there."""
    MISFIRE = "misfire"
    """Checks of another promise are red, or were not judged, and the catalogue does not say why."""
    FALSE_ALARM = "false alarm"
    """A harmless change turned a check red."""
    UNJUDGED = "not judged"
    """It could not be built, the suite did not run, or checks of a harmless change were not judged."""

    @property
    def fine(self) -> bool:
        """Whether the suite did what it must."""
        return self in (Verdict.KILLED, Verdict.GREEN, Verdict.BLIND)


@dataclass(frozen=True)
class Judgement:
    """One row of the table.

    Attributes:
        mutant: its name.
        verdict: see :class:`Verdict`.
        red: checks of the broken promise that failed, by id.
        stray: checks of other behaviours that failed.
        unjudged: checks that were to run and say nothing.
        checks: how many were judged.
        unexplained: behaviours of the stray checks, and ``not judged``, for which the catalogue gives no reason.
        reasons: why each check that is not green is not, in its first line, by id.
        why: where the mutant was not judged: why.
        seconds: that the suite took.
        selection: which checks were to run, for people.
    """

    mutant: str
    verdict: Verdict
    red: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    checks: int = 0
    unexplained: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)
    why: str = ""
    seconds: float = 0.0
    selection: str = ""

    @property
    def killers(self) -> Mapping[str, int]:
        """The tests that noticed, without parameters, each with how many of its checks did."""
        return Counter(check.partition("[")[0].rpartition("::")[2] for check in self.red)


def judge(mutant: Mutant, result: Conformance) -> Judgement:
    """Judge what the suite found out about a mutant.

    Args:
        mutant: what was altered.
        result: of all clusters the suite ran on.
    """
    tests = [(behaviour.name, test) for c in result.clusters for behaviour in c.behaviours for test in behaviour.tests]
    red = [(name, test) for name, test in tests if test.outcome in _RED]
    stray = [(name, test) for name, test in red if name not in mutant.breaks]
    unjudged = [(name, test) for name, test in tests if _lost(name, test)]
    causes = {*(name for name, _ in stray), *([UNJUDGED] if unjudged else [])}
    unexplained = tuple(sorted(causes - set(mutant.also)))
    judged = sum(test.outcome.judged for _, test in tests)
    own = len(red) - len(stray)
    return Judgement(
        mutant.name,
        _verdict(mutant, own, judged, bool(red), bool(unjudged), bool(unexplained)),
        red=_ids(test for name, test in red if name in mutant.breaks),
        stray=_ids(test for _, test in stray),
        unjudged=_ids(test for _, test in unjudged),
        checks=judged,
        unexplained=unexplained,
        reasons={test.id: test.reason.strip().partition("\n")[0] for _, test in (*red, *unjudged)},
    )


def _verdict(mutant: Mutant, own: int, judged: int, red: bool, unjudged: bool, unexplained: bool) -> Verdict:
    if not judged:
        return Verdict.UNJUDGED
    if mutant.harmless:
        return Verdict.FALSE_ALARM if red else Verdict.UNJUDGED if unjudged else Verdict.GREEN
    if unexplained:
        return Verdict.MISFIRE
    if mutant.survives:
        return Verdict.SEEN if own else Verdict.BLIND
    return Verdict.KILLED if own else Verdict.SURVIVED


def _lost(behaviour: str, test: TestResult) -> bool:
    """Whether a check was to run and says nothing, though the local provider can run it."""
    return not (test.outcome.judged or behaviour == _BEYOND_LOCAL or test.reason == _DESELECTED)


def _ids(tests: Iterable[TestResult]) -> tuple[str, ...]:
    return tuple(sorted(test.id for test in tests))
