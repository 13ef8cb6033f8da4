"""What a wait that failed says, and the budgets it names."""

from __future__ import annotations

import re

import pytest

from pvaffinity.budgets import BUDGETS, Budget, budget_of
from pvaffinity.conditions import has_event, is_bound, is_gone, is_running, is_running_on, is_unschedulable
from pvaffinity.waiting import WaitError, WaitTimeout
from selftests.watched import Server, unscheduled, wait

pytestmark = pytest.mark.usefixtures("quick_waits")


def test_message_has_four_parts() -> None:
    """A time-out says what was awaited and in which budget, what was last seen, what happened, where evidence lies."""
    server = Server("stall")
    server.put(phase="Pending")
    server.unseen = lambda: unscheduled(server)
    with pytest.raises(WaitTimeout) as caught:
        wait(server, budget=Budget("schedule", 0.3, "standard", "", ""), evidence=lambda: "pod.yaml pv.yaml")  # type: ignore[arg-type]
    what, seen, timeline, evidence = str(caught.value).splitlines()
    assert what == "Pod ns/reader was not running within 0.3 s (budget: schedule)"
    assert re.fullmatch(
        r"  last seen   \d looks, newest \d+\.\d s ago: Pending, PodScheduled=False \(Unschedulable\): no node fits",
        seen,
    )
    assert re.match(r"  timeline    \+\d+\.\d s Pending · \+\d+\.", timeline)
    assert timeline.endswith("no node fits · no change since")
    assert evidence == "  evidence    pod.yaml pv.yaml"
    assert caught.value.last is not None
    assert isinstance(caught.value, AssertionError)


def test_message_with_a_timeline() -> None:
    """Where the test keeps a timeline, the message shows that one."""

    class Timeline:
        def render(self, limit: int = 0) -> str:
            return "+0.1 s PV patched\n+0.2 s nothing"

    with pytest.raises(
        WaitTimeout, match=r"  timeline    \+0.1 s PV patched\n {14}\+0.2 s nothing\n  evidence    none"
    ):
        wait(Server(), budget=0, timeline=Timeline())


def test_conditions_bring_their_budgets() -> None:
    """Every condition names a budget of the table; unknown names are errors."""
    for condition in (is_bound, is_gone, is_running, is_unschedulable, has_event("x"), is_running_on([], "x")):
        assert condition.budget in BUDGETS
    with pytest.raises(KeyError):
        budget_of("nosuch")
    assert budget_of(3).seconds == 3


def test_budgets_can_tell_a_retry_from_the_flush() -> None:
    """The schedule budget lies far below the five minutes after which the scheduler retries without cause."""
    assert BUDGETS["schedule"].seconds <= 60
    assert BUDGETS["recover-slow"].seconds >= 123 + 122
    assert all(b.kind in ("standard", "patience") and b.awaited and b.source for b in BUDGETS.values())


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=str)
def test_budgets_are_ten_times_what_is_usual(budget: Budget) -> None:
    """Each is at least ten times the p99 measured, or says why there is none: only then is running out a finding."""
    if budget.p99 is None:
        assert budget.unmeasured
    else:
        assert budget.seconds >= 10 * budget.p99
        assert not budget.unmeasured


def test_errors_are_assertions() -> None:
    """A failed wait is a failed assertion, not a broken test."""
    assert issubclass(WaitError, AssertionError)
