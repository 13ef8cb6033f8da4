"""What each verb puts on the wire; that servers then agree is shown by the suite itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pvaffinity.affinity import in_region, in_zone
from pvaffinity.api import APPLY, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Response
from pvaffinity.errors import ApiError
from pvaffinity.kubectl import Completed
from pvaffinity.objects import Obj, Ref
from pvaffinity.outcomes import FORBIDDEN, Accepted, Refused
from pvaffinity.patches import Updater, Verb, hand_over, update

PV = Ref("PersistentVolume", "pv-a")
ZONE, REGION = in_zone("a").to_dict(), in_region("r").to_dict()
APPLIED, CREATED = ("pvaffinity", "Apply"), ("python", "Update")


def volume(affinity: Obj | None, *owners: tuple[str, str]) -> Obj:
    fields = {"f:spec": {"f:nodeAffinity": {"f:required": {}}, "f:capacity": {}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pv-a",
            "resourceVersion": "7",
            "managedFields": [
                {"manager": m, "operation": o, "fieldsType": "FieldsV1", "fieldsV1": copy.deepcopy(fields)}
                for m, o in owners
            ],
        },
        "spec": {"capacity": {"storage": "1Gi"}, **({} if affinity is None else {"nodeAffinity": affinity})},
    }


class _Wire:
    """Records requests and answers them from a script."""

    def __init__(self, stored: Obj | None, *answers: Exception) -> None:
        self.stored, self.answers, self.sent = stored, list(answers), []  # type: ignore[var-annotated]

    def get(self, ref: Ref) -> Obj:
        if self.stored is None:
            raise ApiError(403, "Forbidden", "no")
        return copy.deepcopy(self.stored)

    def _answer(self, *sent: Any) -> Response:
        self.sent.append(sent)
        if self.answers:
            raise self.answers.pop(0)
        return Response(200, {"answered": True}, ())

    def replace(self, obj: Obj, **query: str) -> Response:
        return self._answer("PUT", copy.deepcopy(obj), query)

    def patch(self, ref: Ref, body: Any, content_type: str, **query: str) -> Response:
        return self._answer(content_type, body, query)


def send(wire: _Wire, value: Obj | None, verb: Verb, **options: Any) -> Any:
    return update(wire, PV, value, verb, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "value", "body"),
    [
        (ZONE, REGION, [{"op": "replace", "path": "/spec/nodeAffinity", "value": REGION}]),
        (None, ZONE, [{"op": "add", "path": "/spec/nodeAffinity", "value": ZONE}]),
        (ZONE, None, [{"op": "remove", "path": "/spec/nodeAffinity"}]),
        (None, None, [{"op": "test", "path": "/metadata/name", "value": "pv-a"}]),
    ],
)
def test_json_patch(stored: Obj | None, value: Obj | None, body: list[Obj]) -> None:
    """A JSON patch names the operation that the stored object needs."""
    wire = _Wire(volume(stored))
    assert send(wire, value, Verb.JSON_PATCH) == Accepted({})
    assert wire.sent == [(JSON_PATCH, body, {"fieldManager": "pvaffinity"})]


@pytest.mark.parametrize("verb", [Verb.MERGE_PATCH, Verb.STRATEGIC_MERGE_PATCH])
@pytest.mark.parametrize(
    ("value", "sent"),
    [
        (REGION, REGION),
        (None, None),
        ({}, {"required": None}),
        ({"required": {}}, {"required": {"nodeSelectorTerms": None}}),
        ({"required": None}, {"required": None}),
    ],
)
def test_merge_patches_null_what_is_absent(verb: Verb, value: Obj | None, sent: Obj | None) -> None:
    """Merging an incomplete value would be no change; nulls make it the whole value."""
    wire = _Wire(None)
    send(wire, value, verb)
    kind = MERGE_PATCH if verb is Verb.MERGE_PATCH else STRATEGIC_PATCH
    assert wire.sent == [(kind, {"spec": {"nodeAffinity": sent}}, {"fieldManager": "pvaffinity"})]


@pytest.mark.parametrize("value", [REGION, None, {}])
def test_put_replaces_the_stored_object(value: Obj | None) -> None:
    """PUT changes nothing but the affinity and keeps the resourceVersion."""
    wire = _Wire(volume(ZONE))
    send(wire, value, Verb.PUT, dry_run=True)
    assert wire.sent == [("PUT", volume(value), {"fieldManager": "pvaffinity", "dryRun": "All"})]


def test_put_reads_again_after_a_conflict() -> None:
    """A 409 is another writer, not an answer about the affinity; five of them are the answer."""
    conflict = ApiError(409, "Conflict", "modified")
    wire = _Wire(volume(ZONE), conflict, conflict)
    assert send(wire, REGION, Verb.PUT) == Accepted({})
    assert len(wire.sent) == 3
    assert send(_Wire(volume(ZONE), *[conflict] * 5), REGION, Verb.PUT) == Refused(409, "Conflict")


def test_apply_takes_the_field_by_force() -> None:
    """Server-side apply carries name and affinity only, and forces."""
    wire = _Wire(None)
    send(wire, REGION, Verb.SERVER_SIDE_APPLY)
    ((kind, body, query),) = wire.sent
    assert kind == APPLY
    assert body == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv-a"},
        "spec": {"nodeAffinity": REGION},
    }
    assert query == {"force": "true", "fieldManager": "pvaffinity"}


@pytest.mark.parametrize(("owners", "writes"), [((APPLIED,), 1), ((APPLIED, CREATED), 2), ((CREATED,), 2)])
def test_apply_clears_what_it_owns(owners: tuple[tuple[str, str], ...], writes: int) -> None:
    """Clearing by apply leaves the field out, after a hand-over where others own it."""
    wire = _Wire(volume(ZONE, *owners))
    send(wire, None, Verb.SERVER_SIDE_APPLY)
    assert len(wire.sent) == writes
    assert "spec" not in wire.sent[-1][1]


def test_dry_run_of_apply_never_hands_over() -> None:
    """A dry run must not write, so it says what is missing; on a field handed over it needs nothing."""
    wire = _Wire(volume(ZONE, CREATED))
    with pytest.raises(ValueError, match="hand_over"):
        send(wire, None, Verb.SERVER_SIDE_APPLY, dry_run=True)
    assert wire.sent == []
    assert send(_Wire(volume(ZONE, APPLIED)), None, Verb.SERVER_SIDE_APPLY, dry_run=True) == Accepted({})
    assert send(_Wire(volume(None, CREATED)), None, Verb.SERVER_SIDE_APPLY, dry_run=True) == Accepted({})


def test_hand_over_moves_ownership_only() -> None:
    """A hand-over changes managedFields alone: nobody else owns the affinity after it, other fields stay owned."""
    wire = _Wire(volume(ZONE, CREATED, ("kubectl", "Update")), ApiError(409, "Conflict", "modified"))
    hand_over(wire, PV)  # type: ignore[arg-type]
    assert len(wire.sent) == 2
    written = wire.sent[-1][1]
    fields = {(e["manager"], e["operation"]): e["fieldsV1"]["f:spec"] for e in written["metadata"]["managedFields"]}
    assert fields == {
        CREATED: {"f:capacity": {}},
        ("kubectl", "Update"): {"f:capacity": {}},
        APPLIED: {"f:nodeAffinity": {"f:required": {}}},
    }
    assert written["spec"] == volume(ZONE)["spec"]


def test_hand_over_of_what_is_owned_writes_nothing() -> None:
    """A second hand-over is none."""
    for stored in (volume(ZONE, APPLIED), volume(None, CREATED)):
        wire = _Wire(stored)
        assert hand_over(wire, PV) == stored  # type: ignore[arg-type]
        assert wire.sent == []


class _Kubectl:
    def __init__(self) -> None:
        self.args: tuple[str, ...] = ()

    def run(self, *args: str) -> Completed:
        self.args = args
        return Completed(args, 0, '{"kind": "PersistentVolume"}', "")


@pytest.mark.parametrize("dry_run", [False, True])
def test_kubectl_patches(dry_run: bool) -> None:
    """The verb kubectl is a JSON patch sent by kubectl, dry on the server."""
    kubectl = _Kubectl()
    outcome = Updater(_Wire(volume(ZONE)), kubectl).update(PV, None, Verb.KUBECTL, dry_run=dry_run)  # type: ignore[arg-type]
    assert outcome == Accepted({})
    assert kubectl.args[:3] == ("patch", "persistentvolume", "pv-a")
    assert '--patch=[{"op": "remove", "path": "/spec/nodeAffinity"}]' in kubectl.args
    assert ("--dry-run=server" in kubectl.args) is dry_run


def test_kubectl_must_be_given() -> None:
    """Without a kubectl that verb is a mistake of the caller."""
    with pytest.raises(ValueError, match="needs a Kubectl"):
        send(_Wire(volume(ZONE)), REGION, Verb.KUBECTL)


@pytest.mark.parametrize("verb", [Verb.PUT, Verb.JSON_PATCH, Verb.KUBECTL])
def test_who_may_not_read_is_refused(verb: Verb) -> None:
    """Where a verb reads first, the refusal of the read is the outcome."""
    wire = _Wire(None)
    assert send(wire, REGION, verb, kubectl=_Kubectl()) == FORBIDDEN
    assert wire.sent == []


@pytest.mark.parametrize("verb", [Verb.PUT, Verb.JSON_PATCH])
def test_another_may_read(verb: Verb) -> None:
    """With another reader the outcome is that of the write itself."""
    wire = _Wire(None, ApiError(403, "Forbidden", "no"))
    assert send(wire, REGION, verb, reader=_Wire(volume(ZONE))) == FORBIDDEN
    assert len(wire.sent) == 1


def test_the_value_given_is_not_touched() -> None:
    """Callers may share one value between writes."""
    value = in_zone("a").to_dict()
    for verb in Verb:
        send(_Wire(volume(ZONE)), value, verb, kubectl=_Kubectl())
    assert value == ZONE
