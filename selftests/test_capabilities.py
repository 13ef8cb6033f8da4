"""Probing the gate: what each possible answer of an API server is taken for, and that nothing is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from pvaffinity.affinity import in_zone
from pvaffinity.api import Response
from pvaffinity.capabilities import GateMetric, gate_capability, gate_metric, gate_state
from pvaffinity.errors import ApiError, Cause, UserError

IMMUTABLE = ApiError(422, "Invalid", "immutable", [Cause("FieldValueInvalid", "nodeAffinity")])


class Server:
    """Answers the probe's update as told, and remembers what exists."""

    def __init__(
        self, answer: Any = None, *, metrics: Any = "", create: ApiError | None = None, allowed: bool = True
    ) -> None:
        self.answer, self.metrics, self.refusal, self.allowed = answer, metrics, create, allowed
        self.volumes: set[str] = set()

    def create(self, volume: dict[str, Any]) -> dict[str, Any]:
        """Store a volume."""
        if self.refusal:
            raise self.refusal
        self.volumes.add(volume["metadata"]["name"])
        return volume

    def patch(self, ref: Any, body: dict[str, Any], content_type: str, **query: str) -> Response:
        """Accept it as a dry run, unless told otherwise."""
        assert query == {"dryRun": "All"}
        assert ref.name in self.volumes
        if isinstance(self.answer, Exception):
            raise self.answer
        return Response(200, {"spec": self.answer or body["spec"]}, ())

    def request(self, method: str, path: str, review: dict[str, Any], **_: Any) -> Response:
        """Who may do what."""
        assert review["spec"]["resourceAttributes"]["verb"] == "patch"
        return Response(201, {"status": {"allowed": self.allowed}}, ())

    def delete(self, ref: Any) -> bool:
        """Forget a volume."""
        self.volumes.discard(ref.name)
        return True

    def text(self, path: str) -> str:
        """The metrics."""
        if isinstance(self.metrics, Exception):
            raise self.metrics
        return str(self.metrics)


UNCHANGED = {"nodeAffinity": in_zone("before").to_dict()}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (None, "on"),
        (IMMUTABLE, "off"),
        (ApiError(422, "Invalid", "x", [Cause("FieldValueForbidden", "nodeAffinity")]), "off"),
        (ApiError(400, "BadRequest", "no"), "unknown"),
        (ApiError(403, "Forbidden", "no"), "unknown"),
        (UNCHANGED, "unknown"),
    ],
    ids=["accepted", "immutable", "another cause", "another code", "allowed and forbidden", "taken but not applied"],
)
def test_the_answer_to_an_update_is_the_gates_state(answer, state):
    """Accepted is on, invalid is off whatever the cause, all else is unknown; the probe's volume is deleted."""
    server = Server(answer)
    assert gate_state(server) == state  # type: ignore[arg-type]
    assert not server.volumes


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(403, "Forbidden", "no"),
        ApiError(400, "BadRequest", 'admission webhook "w" denied the request: no'),
        ApiError(422, "Invalid", "pv is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
    ],
    ids=["forbidden", "webhook", "policy"],
)
def test_who_may_not_ask_learns_no_state(answer):
    """Lacking rights, and an admission policy's or webhook's refusal, are never taken for a state of the gate."""
    server = Server(answer, allowed=False)
    with pytest.raises(UserError, match="the gate cannot be probed"):
        gate_state(server)  # type: ignore[arg-type]
    assert not server.volumes


def test_who_may_not_create_volumes_is_told_so():
    """Without the right to create a volume the message says which rights are needed."""
    with pytest.raises(UserError, match="creating a PersistentVolume is refused") as caught:
        gate_state(Server(create=ApiError(403, "Forbidden", "no")))  # type: ignore[arg-type]
    assert "persistentvolumes" in caught.value.fix


def test_a_server_that_cannot_answer_says_nothing_about_rights():
    """Nobody is told to use another identity because the API server was full."""
    with pytest.raises(ApiError, match="503"):
        gate_state(Server(create=ApiError(503, "ServiceUnavailable", "later")))  # type: ignore[arg-type]


METRICS = """# HELP kubernetes_feature_enabled [BETA] x
kubernetes_feature_enabled{name="MutableCSINodeAllocatableCount",stage="BETA"} 1
kubernetes_feature_enabled{name="MutablePVNodeAffinity",stage="ALPHA"} %s
"""


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (METRICS % 1, GateMetric("ALPHA", True)),
        (METRICS % 0, GateMetric("ALPHA", False)),
        ('kubernetes_feature_enabled{name="Other",stage="ALPHA"} 1\n', None),
        (ApiError(403, "Forbidden", "no"), None),
    ],
    ids=["on", "off", "unknown gate", "unreadable"],
)
def test_the_metric_is_read_for_this_gate_only(metrics, expected):
    """The metric of another gate, none at all, or no right to read it give no answer."""
    assert gate_metric(Server(metrics=metrics)) == expected  # type: ignore[arg-type]


def test_the_capability_names_both_witnesses():
    """Its presence is what the server did; what it said stands beside it as evidence."""
    capability = gate_capability(Server(IMMUTABLE, metrics=METRICS % 1))  # type: ignore[arg-type]
    assert not capability.present
    assert "refused with 422" in capability.evidence
    assert "= 1" in capability.evidence
