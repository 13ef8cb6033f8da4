"""The sweep's book-keeping: steps, plans, records, charts, and what an observer makes of a watch."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pvaffinity.affinity import in_zone
from pvaffinity.errors import ApiError, UserError
from pvaffinity.races import CUT_SHORT, OFFSETS_MS, Record, SweepError, observe, sweep
from pvaffinity.races.firing import Gun, Plan
from pvaffinity.races.observe import Observer, Sighting, TooSlowError, await_all, fate_of
from pvaffinity.races.pace import Pace
from pvaffinity.races.record import step_of
from pvaffinity.races.stage import Stage
from pvaffinity.races.sweep import _worthwhile
from pvaffinity.verdicts import Binding, Fate, Verdict, Warned

DATA = Path(__file__).parent / "data/races"


@pytest.mark.parametrize(
    ("measured", "step"),
    [
        (-30, -30),
        (-34.9, -30),
        (-35.1, None),
        (-24, -20),
        (-1.2, -2),
        (-0.01, -2),
        (0.0, 0),
        (0.9, 0),
        (1.1, 2),
        (34.9, 30),
        (36, None),
    ],
)
def test_a_round_belongs_to_the_nearest_step_of_its_sign(measured, step):
    """A measured offset counts for the nearest step, never across zero, and not at all far outside."""
    assert step_of(measured, OFFSETS_MS) == step


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


def test_saved_record_is_the_same_record(tmp_path):
    """Saving and loading keeps every history, so that judging again gives the same summary."""
    record = Record.load(DATA / "handmade.jsonl")
    again = Record.load(record.save(tmp_path / "race.jsonl"))
    assert again == record
    assert again.summary() == record.summary()


def test_summary_counts_every_round_and_names_what_fails():
    """Each round is counted once, and each escaped or unknown one is named with its reason."""
    summary = Record.load(DATA / "handmade.jsonl").summary()
    counts = {str(verdict): count for verdict, count in summary.totals.items()}
    assert counts == {"kept": 2, "pending": 1, "stranded": 2, "escaped": 2, "unknown": 2}
    assert not summary.holds
    assert {history.name.split(":")[0] for history, _ in summary.failures} == {"escaped", "unknown"}
    assert "escaped: runs on the old node" in str(summary)
    assert [history.name for history, _ in summary.left_out] == ["unknown: the update was never acknowledged"]
    assert "does not count: the update was never acknowledged" in str(summary)


def test_real_record_holds():
    """Rounds of a real 1.37 cluster: no pod escaped, stranded ones included."""
    summary = Record.load(DATA / "kubernetes-1.37.jsonl").summary()
    assert summary.holds, str(summary)
    assert summary.totals[Verdict.STRANDED] > 0


def test_real_escapes_are_found():
    """Rounds of a real cluster whose kubelet had nothing to check: stale placements ran, and are judged so.

    The pods listed their claim without mounting it, and the kubelet looks at mounted volumes only.
    """
    summary = Record.load(DATA / "unchecked-volume.jsonl").summary()
    counts = {str(verdict): count for verdict, count in summary.totals.items() if count}
    assert counts == {"escaped": 4, "kept": 5}
    assert not replace(summary, rounds=0).holds


def test_a_step_without_its_rounds_is_no_evidence():
    """A sweep that lacks rounds in one step does not hold, even if nothing went wrong."""
    record = Record.load(DATA / "kubernetes-1.37.jsonl")
    some = tuple(h for h in record.histories if h.offset_ms is None or h.offset_ms < 0)
    summary = replace(record, histories=some).summary()
    assert not summary.failures
    assert not summary.holds


@pytest.mark.parametrize("text", ["", "{}", '{"format":"pvaffinity-race/1"}', "no json", '{"format":"other/9"}\n'])
def test_damaged_records_are_refused_by_name(tmp_path, text):
    """A file that is no record, or half of one, is the user's to replace, in one line."""
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.jsonl is (not a race record|damaged)"):
        Record.load(path)


def test_a_cut_line_is_damage(tmp_path):
    """A record whose last line is cut off is not read as a shorter one."""
    path = tmp_path / "cut.jsonl"
    path.write_text((DATA / "handmade.jsonl").read_text()[:-40])
    with pytest.raises(UserError, match="damaged"):
        Record.load(path)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_chart_is_drawn(tmp_path, ending):
    """The chart is written in the format its name ends with."""
    path = Record.load(DATA / "handmade.jsonl").chart(tmp_path / f"chart.{ending}")
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def pod(version: int, node: str | None = None, **status: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "resourceVersion": str(version)},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


class Server:
    """Answers lists and watches of pods from a script; events are none. An ``ApiError`` in the script is raised."""

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[list[Any]]) -> None:
        self.lists, self.watches = iter(lists), iter(watches)

    def snapshot(self, kind: str, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        """The next list of the script."""
        return (next(self.lists) if kind == "Pod" else []), "1"

    def watch(self, kind: str, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """The next stream of the script; the last one stays open until it is stopped."""
        for entry in next(self.watches, None) or () if kind == "Pod" else ():
            if isinstance(entry, Exception):
                raise entry
            yield entry
        if kind != "Pod" or not self._more():
            while not stop.closed:
                threading.Event().wait(0.01)

    def _more(self) -> bool:
        self.watches = iter(rest := list(self.watches))
        return bool(rest)


def test_binding_version_is_that_of_the_first_bound_version_seen():
    """The event that first shows a node gives the binding's version; later ones do not move it."""
    events = [("ADDED", pod(5)), ("MODIFIED", pod(7, "n")), ("MODIFIED", pod(9, "n", phase="Running"))]
    with Observer(Server([[]], [events]), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.fate.phase == "Running", 30)
        assert observer.take("p").binding == Binding("n", 7)


def test_a_resumed_watch_loses_nothing():
    """A stream that merely ends is resumed where it was, so the binding's version is still exact."""
    streams = [[("ADDED", pod(5))], [("MODIFIED", pod(7, "n"))]]
    with Observer(Server([[]], streams), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.binding is not None, 30)
        assert observer.take("p").binding == Binding("n", 7)


def test_after_410_the_binding_version_is_unknown():
    """A binding found in a new list after an expired watch has a node but no version."""
    streams = [[("ADDED", pod(5)), ApiError(410, "Expired", "too old")], []]
    with Observer(Server([[], [pod(9, "n")]], streams), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.binding is not None, 30)
        assert observer.take("p").binding == Binding("n", None)


@pytest.mark.parametrize(
    "trouble", [ApiError(429, "TooManyRequests", "later"), ConnectionResetError("reset")], ids=repr
)
def test_a_server_that_cannot_answer_for_a_while_is_asked_again(monkeypatch, trouble):
    """A list or a watch that fails for a moment ends no sweep, and the watch is resumed where it was."""

    class Busy(Server):
        lists_failed = 0

        def snapshot(self, kind: str, *more: Any, **options: Any) -> tuple[list[dict[str, Any]], str]:
            """The first two fail."""
            if self.lists_failed < 2:
                self.lists_failed += 1
                raise trouble
            return super().snapshot(kind, *more, **options)

    monkeypatch.setattr(observe, "_PAUSE", 0.01)
    streams = [[("ADDED", pod(5)), trouble], [trouble], [("MODIFIED", pod(7, "n"))]]
    with Observer(Busy([[]], streams), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(["p"], lambda seen: seen.binding is not None, 30)
        assert observer.take("p").binding == Binding("n", 7)


def test_a_failing_watch_ends_the_sweep():
    """An error of the watch reaches whoever waits, instead of letting the wait run out."""
    server = Server([[]], [[("ADDED", pod(5)), ApiError(403, "Forbidden", "no")]])
    with pytest.raises(SweepError, match="a watch failed: 403"):
        with Observer(server, "ns", "a=b") as observer:  # type: ignore[arg-type]
            observer.wait(["p"], lambda seen: False, 30)


def test_waiting_for_objects_names_the_missing():
    """What is not met in time is counted and named."""
    with pytest.raises(TooSlowError, match=r"1 of 2 Pods were not Bound, none for 0\.1 s: q"):
        await_all(
            Server([[pod(3)]], []),  # type: ignore[arg-type]
            "Pod",
            "ns",
            ["p", "q"],
            lambda obj: True,
            labels="a=b",
            seconds=0.1,
            what="Bound",
        )


def test_patience_begins_anew_with_every_pod_that_gets_there():
    """A slow cluster is waited for as long as pods keep coming; it is given up when none comes any more."""

    class Slow(Server):
        def watch(self, kind: str, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, dict[str, Any]]]:
            """A pod every 0.2 s, four of them; then nothing more."""
            for number in range(4 if kind == "Pod" else 0):
                threading.Event().wait(0.2)
                obj = pod(5 + number)
                obj["metadata"]["name"] = f"p{number}"
                yield "DELETED", obj
            while not stop.closed:
                threading.Event().wait(0.01)

    names = [f"p{number}" for number in range(4)]
    with Observer(Slow([[]], []), "ns", "a=b") as observer:  # type: ignore[arg-type]
        assert observer.wait(names, lambda seen: seen.gone, 30)
        assert not observer.wait([*names, "p4"], lambda seen: seen.gone, 0.1)
    await_all(Slow([[]], []), "Pod", "ns", names, lambda obj: True, labels="a=b", seconds=30, what="there")  # type: ignore[arg-type]


def test_patience_ends_one_budget_after_the_sweeps_time():
    """However many pods still come one by one, a wait goes on for no longer than its budget after the sweep's end."""

    class Endless(Server):
        def watch(self, kind: str, *_: Any, stop: Any, **__: Any) -> Iterator[tuple[str, dict[str, Any]]]:
            """A pod every 0.1 s."""
            for number in itertools.count():
                if stop.closed:
                    return
                threading.Event().wait(0.1)
                obj = pod(5 + number)
                obj["metadata"]["name"] = f"p{number}"
                if kind == "Pod":
                    yield "DELETED", obj

    names = [f"p{number}" for number in range(300)]
    with Observer(Endless([[]], []), "ns", "a=b") as observer:  # type: ignore[arg-type]
        begun = time.monotonic()
        assert not observer.wait(names, lambda seen: seen.gone, 2, begun + 0.2)
        assert time.monotonic() - begun < 20
    begun = time.monotonic()
    with pytest.raises(TooSlowError, match="the sweep's time was over"):
        await_all(
            Endless([[]], []),  # type: ignore[arg-type]
            "Pod",
            "ns",
            names,
            lambda obj: True,
            labels="a=b",
            seconds=2,
            what="there",
            end=begun + 0.2,
        )
    assert time.monotonic() - begun < 20


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


@pytest.mark.parametrize(
    ("status", "ran"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, False),
        ({"containerStatuses": [{"ready": True, "state": {"waiting": {}}}]}, False),
        ({"containerStatuses": [{"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}, True),
        ({"containerStatuses": [{"state": {"terminated": {"startedAt": "2026-01-01T00:00:00Z"}}}]}, True),
        ({"containerStatuses": [{"state": {"terminated": {"startedAt": None}}}]}, False),
        ({"containerStatuses": [{"state": {"waiting": {}}, "lastState": {"terminated": {"startedAt": "x"}}}]}, True),
        ({}, False),
    ],
)
def test_a_pod_ran_if_a_container_started(status, ran):
    """Only a started container counts, not readiness, and a start is never forgotten."""
    assert fate_of(pod(1, "n", **status)).ran is ran
    assert fate_of(pod(1, "n", **status), ran_before=True).ran


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


def test_a_race_nobody_can_lose_is_refused():
    """Without a node that the tightening takes away, every verdict would be kept: that is refused, not passed."""

    class Nodes:
        def list(self, kind: str) -> list[dict[str, Any]]:
            """One node, in the volume's new zone."""
            return [{"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "c"}}}]

    with pytest.raises(SweepError, match="nothing to lose"):
        sweep(Nodes(), namespace="ns", before=in_zone("b"), after=in_zone("c"))  # type: ignore[arg-type]


@pytest.fixture
def two_zones(monkeypatch):
    """A server with a node in each of two zones, whose volumes are updated and whose pods nobody ever sees."""

    class Cluster(Server):
        def list(self, kind: str, **_: Any) -> list[dict[str, Any]]:
            """Two nodes; no volumes."""
            zones = "bc" if kind == "Node" else ""
            return [{"metadata": {"name": z, "labels": {"topology.kubernetes.io/zone": z}}} for z in zones]

        def request(self, *_: Any, **__: Any) -> None:
            """Deletes whatever is asked for."""

        versions = itertools.count(3)
        lost = 0  # so many creations get no answer

        def once(self) -> Cluster:
            """There is no other try anyway."""
            return self

        def patch(self, *_: Any, **__: Any) -> Any:
            """Updates."""
            return SimpleNamespace(body={"metadata": {"resourceVersion": str(next(self.versions))}})

        def create(self, *_: Any, **__: Any) -> Any:
            """Creates."""
            if self.lost:
                self.lost -= 1
                raise self.loss
            return {"metadata": {"resourceVersion": str(next(self.versions))}}

    monkeypatch.setattr(Stage, "stored_affinities", lambda _: SimpleNamespace(get=lambda _: in_zone("c").to_dict()))
    return Cluster([[]], [])


@pytest.mark.parametrize("trouble", [ApiError(504, "Timeout", "later"), ConnectionResetError("reset")], ids=repr)
def test_volumes_that_cannot_be_made_for_a_while_cut_the_sweep_short(two_zones, monkeypatch, trouble):
    """A write whose answer is lost while rounds are prepared is no finding: the record says why there are no more."""
    monkeypatch.setattr(Stage, "prepare", Mock(side_effect=trouble))
    record = sweep(two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1)
    assert "not answer: " in record.notes[CUT_SHORT]


def test_volumes_that_are_refused_end_the_sweep(two_zones, monkeypatch):
    """What the server refuses, it will refuse again."""
    monkeypatch.setattr(Stage, "prepare", Mock(side_effect=ApiError(403, "Forbidden", "no")))
    with pytest.raises(ApiError):
        sweep(two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1)


def test_volumes_that_are_not_bound_cut_the_sweep_short(two_zones, monkeypatch):
    """A cluster too slow to bind claims is no error: the record says why it has no rounds, and is no evidence."""

    def prepare(*_: Any) -> None:
        raise TooSlowError("3 of 13 claims were not bound")

    monkeypatch.setattr(Stage, "prepare", prepare)
    record = sweep(two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1)
    assert record.notes[CUT_SHORT] == "3 of 13 claims were not bound"
    assert not record.summary().failures
    assert len(record.summary().short) == len(OFFSETS_MS)
    assert Record.load(DATA / "kubernetes-1.37.jsonl").notes.get(CUT_SHORT) is None


def test_pods_that_do_not_go_cut_the_sweep_short(two_zones, monkeypatch):
    """A cluster too slow to end pods keeps the rounds it has: they were judged before their pods were to go."""
    monkeypatch.setattr(Stage, "prepare", lambda *_: None)
    monkeypatch.setattr(Observer, "wait", lambda *_: False)
    record = sweep(two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1)
    assert record.histories
    assert "pods were still there, none had gone for 60 s" in record.notes[CUT_SHORT]


def test_pods_whose_end_is_not_seen_cut_the_sweep_short(two_zones, monkeypatch, tmp_path):
    """A cluster too slow to start pods is no finding: its open rounds are on record, and do not count."""
    monkeypatch.setattr(Stage, "prepare", lambda *_: None)
    monkeypatch.setattr(Observer, "wait", lambda *_: False)
    monkeypatch.setattr(Stage, "remove_pods", lambda *_: None)
    record = sweep(two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1)
    summary = Record.load(record.save(tmp_path / "race.jsonl")).summary()
    assert not summary.failures
    assert len(summary.left_out) == len(record.histories) > 0
    assert len(summary.short) == len(OFFSETS_MS)
    assert "pods was not seen, no other one's for 60 s" in record.notes[CUT_SHORT]
    assert "not awaited any longer" in str(summary)


def test_an_open_end_does_not_hide_what_is_wrong_with_a_round(two_zones, monkeypatch):
    """A round that is unknown for another reason stays a failure on a slow cluster."""
    monkeypatch.setattr(Stage, "prepare", lambda *_: None)
    monkeypatch.setattr(Stage, "remove_pods", lambda *_: None)
    monkeypatch.setattr(Stage, "stored_affinities", lambda _: {})
    monkeypatch.setattr(Observer, "wait", lambda *_: False)
    summary = sweep(two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1).summary()
    assert summary.failures
    assert not summary.left_out


@pytest.mark.parametrize(
    "loss",
    [ConnectionResetError("no answer"), ApiError(500, "InternalError", "etcdserver: request timed out")],
    ids=["none", "etcd"],
)
def test_a_lost_answer_is_no_finding_and_no_round(two_zones, monkeypatch, loss):
    """A round whose creation got no answer is not awaited, does not count, and is had again."""
    awaited: list[str] = []

    def wait(_: Any, names: list[str], *__: Any) -> bool:
        awaited.extend(names)
        return True

    ran = Sighting(binding=Binding("c", 10**6), fate=Fate("Running", ran=True))
    monkeypatch.setattr(Stage, "prepare", lambda *_: None)
    monkeypatch.setattr(Observer, "wait", wait)
    monkeypatch.setattr(Observer, "take", lambda *_: ran)
    two_zones.lost, two_zones.loss = 2, loss
    record = sweep(
        two_zones, namespace="ns", before=in_zone("b"), after=in_zone("c"), rounds=1, offsets_ms=(-500.0, 500.0)
    )
    summary = record.summary()
    assert summary.holds, str(summary)
    assert "the answer was lost" in summary.left_out[0][1].why
    lost = {history.name for history, _ in summary.left_out}
    assert len(lost) == 2
    assert not lost & set(awaited)
    assert CUT_SHORT not in record.notes


def test_a_mount_that_failed_for_another_reason_is_not_the_end():
    """A kubelet that may not read the claim yet says FailedMount and tries again: the pod's fate is still open."""
    early = Warned("FailedMount", "failed to fetch PVC: forbidden: no relationship found between node and this object")
    late = Warned("FailedMount", 'MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms')
    seen = Sighting(binding=Binding("worker", 7), events=[early])
    assert not seen.settled
    seen.events.append(late)
    assert seen.settled
