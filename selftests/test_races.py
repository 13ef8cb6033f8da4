"""A whole sweep, on a cluster that is a stand-in: what cuts it short, what ends it, and what counts."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pvaffinity.affinity import in_zone
from pvaffinity.errors import ApiError
from pvaffinity.races import CUT_SHORT, OFFSETS_MS, Record, SweepError, sweep
from pvaffinity.races.observe import Observer, Sighting, TooSlowError
from pvaffinity.races.stage import Stage
from pvaffinity.verdicts import Binding, Fate
from selftests.scripted import Server


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
    assert Record.load(Path(__file__).parent / "data/races/kubernetes-1.37.jsonl").notes.get(CUT_SHORT) is None


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
