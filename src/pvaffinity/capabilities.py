"""What a cluster can do, measured instead of believed: configuration files and version numbers are claims.

The gate ``MutablePVNodeAffinity`` is one condition in the API server's validation (k8s.io/kubernetes
pkg/apis/core/validation/validation.go, ``ValidatePersistentVolumeUpdate``), so the API server's answer to one update is
the whole truth about it. The metric is a second witness, for those who may read it.
"""

from __future__ import annotations

__all__ = ["Capability", "GateMetric", "gate_capability", "gate_metric", "gate_state"]

import re
import secrets
from dataclasses import dataclass
from typing import Literal

from pvaffinity.affinity import in_zone
from pvaffinity.api import MERGE_PATCH, Api
from pvaffinity.clusterconfig import GATE
from pvaffinity.errors import ApiError, UserError
from pvaffinity.identities import can_i
from pvaffinity.manifests import persistent_volume
from pvaffinity.objects import ref_of
from pvaffinity.outcomes import Accepted, attempt
from pvaffinity.refusals import by_admission, no_verdict

_METRIC = re.compile(
    rf'^kubernetes_feature_enabled{{name="{GATE}",stage="(?P<stage>[^"]*)"}} (?P<value>[0-9.e+]+)$', re.MULTILINE
)


@dataclass(frozen=True)
class Capability:
    """Something a test may need: whether it is there, and how that is known."""

    name: str
    present: bool
    evidence: str


@dataclass(frozen=True)
class GateMetric:
    """What ``kubernetes_feature_enabled`` says of the gate (k8s.io/component-base metrics/prometheus/feature).

    Attributes:
        stage: ``ALPHA``, ``BETA`` or empty for a gate that is generally available.
        enabled: the metric's value.
    """

    stage: str
    enabled: bool


def gate_state(api: Api) -> Literal["on", "off", "unknown"]:
    """Whether this API server lets a volume's node affinity be changed.

    A throw-away volume is created and asked to move to another zone by a server-side dry-run, which is validated like
    any update and stores nothing; then the volume is deleted. Servers with the gate off, and those that do not know it,
    refuse with 422 Invalid. Which cause they name is for the checks to judge: a server that names another one is off
    all the same. Any other answer of a server is *unknown*, which no configuration promises: also a refusal with 403 of
    what this identity may do, as SelfSubjectAccessReview says.

    Raises:
        UserError: the identity may not write volumes, or a policy or webhook refuses it.
        ApiError: the server could not answer.
    """
    name = f"pvaffinity-probe-{secrets.token_hex(4)}"
    volume = persistent_volume(name, in_zone("before").to_dict(), mark="probe")
    try:
        stored = api.create(volume)
    except ApiError as error:
        if no_verdict(error) and not by_admission(error.message):
            raise
        raise UserError(
            f"the gate cannot be probed: creating a PersistentVolume is refused: {error}",
            "use an identity that may create, patch and delete persistentvolumes, such as a cluster administrator",
        ) from error
    try:
        change = {"spec": {"nodeAffinity": in_zone("after").to_dict()}}
        outcome = attempt(lambda: api.patch(ref_of(volume), change, MERGE_PATCH, dryRun="All"))
    except ApiError as error:
        if not by_admission(error.message):
            raise
        raise _guarded(str(error), error.message) from error
    finally:
        api.delete(ref_of(volume))
    if isinstance(outcome, Accepted):
        taken = outcome.object["spec"].get("nodeAffinity") != stored["spec"].get("nodeAffinity")
        return "on" if taken else "unknown"
    if outcome.code == 403 and not can_i(api, "patch", "persistentvolumes", name=name):
        raise _guarded(str(outcome), outcome.message)
    return "off" if outcome.code == 422 else "unknown"


def _guarded(refusal: str, message: str) -> UserError:
    return UserError(
        f"the gate cannot be probed: changing a PersistentVolume's affinity is refused: {refusal}",
        "look for admission webhooks or policies that guard PersistentVolumes, or use an administrator's identity",
        detail=message,
    )


def gate_metric(api: Api) -> GateMetric | None:
    """What the API server's own ``/metrics`` says of the gate; None where it has no such gate or may not be read."""
    try:
        match = _METRIC.search(api.text("/metrics"))
    except ApiError:
        return None
    return GateMetric(match["stage"], float(match["value"]) == 1.0) if match else None


def gate_capability(api: Api) -> Capability:
    """The gate as a capability, with both witnesses as its evidence.

    Raises:
        UserError: as :func:`gate_state`.
    """
    state, metric = gate_state(api), gate_metric(api)
    said = "no metric" if metric is None else f"kubernetes_feature_enabled = {int(metric.enabled)} ({metric.stage})"
    did = {
        "on": "a changed node affinity is accepted",
        "off": "a changed node affinity is refused with 422 Invalid",
        "unknown": "a changed node affinity is neither applied nor refused with 422 Invalid",
    }
    return Capability(GATE, state == "on", f"{did[state]} (dry run); {said}")
