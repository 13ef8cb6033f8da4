"""The shots of a sweep: how many, at which offsets, at which pace, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pvaffinity.errors import ApiError
from pvaffinity.races import SweepError
from pvaffinity.races.firing import Gun, Plan
from pvaffinity.races.pace import Pace
from pvaffinity.races.sweep import _worthwhile


def test_the_plan_aims_until_every_step_has_its_rounds():
    """Shots that always hit fill the plan exactly; what misses is aimed at again."""
    plan = Plan((-2.0, 0.0, 2.0), 5, random.Random(1))
    fired = 0
    while (offset := plan.aim()) is not None:
        fired += 1
        plan.hit(100.0 if fired % 3 == 0 else offset)
    assert plan.done == plan.wanted == 15
    assert plan.lacking == 0
    assert fired == 22  # every third shot missed


def test_the_plan_expects_as_many_misses_as_lately():
    """Where shots miss, more volumes are made ready for the rounds still to be had."""
    plan = Plan((-2.0, 0.0), 20, random.Random(1))
    sure = plan.shots_needed()
    for _ in range(40):
        plan.hit(100.0)
    assert plan.shots_needed() > 10 * sure


def test_the_pace_follows_the_cluster():
    """Batches grow at most twofold while they are over quickly, and shrink to what is over in ten seconds."""
    pace = Pace()
    first = pace.size
    sizes = []
    for _ in range(4):
        pace.took(pace.size, pace.size / 10)  # ten pods a second
        sizes.append(pace.size)
    assert sizes == [2 * first, 52, 52, 52]
    pace.took(52, 104)
    assert pace.size == 6  # half a pod a second would be 5
    pace.took(6, 6)
    assert pace.size == 10
    assert str(pace).startswith("13 in 1 s, 26 in 3 s, 52 in 5 s")
    assert pace.seconds_for(110) == pytest.approx(115.2)  # the last three: 52 in 5.2 s, 52 in 104 s, 6 in 6 s


@pytest.mark.parametrize(("elapsed", "misses", "goes_on"), [(20, 40, True), (100, 0, True), (100, 40, False)])
def test_a_sweep_that_cannot_be_finished_in_time_is_not_gone_on_with(elapsed, misses, goes_on):
    """After a third of its time a sweep ends when shots miss so often that twice the time left would not do."""
    plan, pace = Plan((-2.0, 0.0), 20, random.Random(1)), Pace()
    for _ in range(misses):
        plan.hit(100.0)
    pace.took(10, 10.0)
    assert _worthwhile(plan, pace, elapsed, 200) is goes_on


class Refusing:
    """Refuses the update, as a server without the gate does."""

    def once(self) -> Refusing:
        """There is no other try anyway."""
        return self

    def patch(self, *_: Any, **__: Any) -> Any:
        """No."""
        raise ApiError(422, "Invalid", "field is immutable")

    def create(self, *_: Any, **__: Any) -> Any:
        """Yes."""
        return {"metadata": {"resourceVersion": "3"}}


@pytest.mark.parametrize("offset", [-5.0, 0.0])
def test_a_refused_update_is_no_race(offset):
    """Where the server refuses the update there is nothing to judge, and the sweep says so at the first round."""
    with pytest.raises(SweepError, match="refused a write of round r: 422 Invalid"):
        Gun(Refusing(), {}).fire("r", {}, offset)  # type: ignore[arg-type]
