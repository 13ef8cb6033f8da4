"""What shows that a cluster is usable is removed again, and what cannot be removed is told with what went wrong."""

import types

import pytest

from pvaffinity import usable
from pvaffinity.affinity import HOSTNAME
from pvaffinity.errors import ApiError
from pvaffinity.waiting import WaitTimeout


class Stubborn:
    """An API that creates, and deletes nothing."""

    def __init__(self, failure):
        self.failure, self.asked = failure, []

    def create(self, obj):
        return obj

    def delete(self, ref, grace_seconds=None):
        self.asked.append(ref)
        raise self.failure


NODE = types.SimpleNamespace(name="n1", labels={HOSTNAME: "n1"})


@pytest.mark.parametrize("failure", [ConnectionError("refused"), ApiError(403, "Forbidden", "no")])
def test_what_was_awaited_is_told_though_nothing_can_be_removed(monkeypatch, failure):
    """The wait's own error goes on, and its notes name every object that is left."""

    def until(api, ref, condition, budget):
        if ref.kind == "Pod":
            raise WaitTimeout("no pod runs; timeline: …")

    monkeypatch.setattr(usable, "until", until)
    api = Stubborn(failure)
    with pytest.raises(WaitTimeout, match="timeline") as caught:
        usable.await_usable(api, [NODE])
    assert [ref.kind for ref in api.asked] == ["Pod", "PersistentVolumeClaim", "PersistentVolume", "Namespace"]
    notes = caught.value.__notes__
    assert len(notes) == 4
    assert all(f"{ref} was not removed: {failure}" == note for ref, note in zip(api.asked, notes, strict=True))


def test_the_proof_does_without_what_is_under_test(monkeypatch):
    """No volume has an affinity: node selectors bring the pods to their nodes, whatever becomes of affinities."""
    made = []
    monkeypatch.setattr(usable, "until", lambda *_: None)
    api = types.SimpleNamespace(create=made.append, delete=lambda *_, **__: None)
    usable.await_usable(api, [NODE])
    specs = {obj["kind"]: obj.get("spec") for obj in made}
    assert "nodeAffinity" not in specs["PersistentVolume"]
    assert specs["Pod"]["nodeSelector"] == NODE.labels


def test_a_proof_that_cannot_be_removed_is_an_error(monkeypatch):
    """Where all else went well, the first refusal is raised; every object that is left is named."""
    monkeypatch.setattr(usable, "until", lambda *_: None)
    api = Stubborn(ConnectionError("refused"))
    with pytest.raises(ConnectionError, match="refused") as caught:
        usable.await_usable(api, [NODE])
    assert {note.partition(" was")[0] for note in caught.value.__notes__} == {str(ref) for ref in api.asked}
    assert len(api.asked) == 4
