"""What an existing cluster is, measured before a session is planned: version, gate, and whether one may use it."""

from __future__ import annotations

__all__ = ["Measured", "measure", "release_of"]

import contextlib
import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pvaffinity import identities, kubeconfig
from pvaffinity.api import TRANSPORT_ERRORS, Api
from pvaffinity.capabilities import gate_state
from pvaffinity.errors import ApiError, UserError
from pvaffinity.providers.existing import Target
from pvaffinity.versions import Release, load_versions

_GATE_SINCE = (1, 35)
_RBAC, _CERTIFICATES = "rbac.authorization.k8s.io", "certificates.k8s.io"

NEEDS = (
    ("", "namespaces", "create get list watch delete"),
    ("", "nodes", "get list"),
    ("", "persistentvolumes", "create get list watch update patch delete deletecollection"),
    ("", "persistentvolumes/status", "patch"),
    ("", "persistentvolumeclaims", "create get list watch delete deletecollection"),
    ("", "pods", "create get list watch delete deletecollection"),
    ("", "pods/binding", "create"),
    ("", "events", "list watch"),
    ("", "serviceaccounts", "create get delete"),
    ("", "serviceaccounts/token", "create"),
    ("apps", "statefulsets", "create get list watch delete"),
    (_RBAC, "clusterroles", "create get list delete bind escalate"),
    (_RBAC, "clusterrolebindings", "create get list delete"),
    (_RBAC, "rolebindings", "create get delete"),
    (_CERTIFICATES, "certificatesigningrequests", "create get list watch delete"),
    (_CERTIFICATES, "certificatesigningrequests/approval", "update patch"),
    (_CERTIFICATES, "signers", "approve"),
)
"""What the suite does, as (API group, resource, verbs); on nodes also ``patch``, where labels are allowed."""


@dataclass(frozen=True)
class Measured:
    """What a cluster is found to be.

    Attributes:
        context: the kubeconfig's context it was reached by.
        release: its version; ``minor`` as it says, also if no such release is known here.
        gate: as its API server behaves.
        note: something the user should know, or empty.
    """

    context: str
    release: Release
    gate: Literal["on", "off"]
    note: str = ""


def measure(target: Target) -> Measured:
    """Reach the cluster, check one's rights, and read version and gate. A throw-away volume is created and deleted.

    Raises:
        UserError: it cannot be reached, does not know us, or gives too few rights; each says what to do.
    """
    files = target.read()
    document = files.only(target.context)
    context = str(document["current-context"])
    with tempfile.TemporaryDirectory(prefix="pvaffinity-") as directory:
        api = Api.from_kubeconfig(kubeconfig.write_private(document, Path(directory) / "kubeconfig"))
        look = f"{files.kubectl} --context {shlex.quote(context)} get --raw /version"
        try:
            release, note = release_of(api.text("/version", timeout=10))
            _check_rights(api, target, context)
            if (gate := gate_state(api)) == "unknown":
                raise UserError(
                    "whether the gate is on cannot be told: a changed node affinity is neither applied nor refused",
                    "look for an admission webhook that changes PersistentVolumes: "
                    "kubectl get mutatingwebhookconfigurations",
                )
        except TRANSPORT_ERRORS as error:
            raise UserError(f"{api.server} (context {context!r}) does not answer: {error}", f"try: {look}") from error
        except ApiError as error:
            if error.code == 401:
                what = f"{api.server} does not know who you are (context {context!r}): 401 Unauthorized"
                raise UserError(what, f"renew the context's credentials, then try: {look}") from error
            raise UserError(f"{api.server} (context {context!r}) refuses: {error}", f"try: {look}") from error
    return Measured(context, release, gate, note)


def release_of(version: str) -> tuple[Release, str]:
    """The release that a server's ``/version`` names, and a note where none of that minor version is known here.

    Raises:
        UserError: it is no answer of a Kubernetes API server.
    """
    full = ""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        full = str(json.loads(version)["gitVersion"]).removeprefix("v")
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", full)
    if match is None:
        what = "what answers is no Kubernetes API server: its /version has no gitVersion"
        raise UserError(what, "check the server's address in the kubeconfig")
    key = tuple(int(number) for number in match.groups())
    minor = f"{key[0]}.{key[1]}"
    versions = load_versions()
    known = {release.minor: release for release in (*versions.releases, *([versions.next] if versions.next else []))}
    if minor in known:
        return replace(known[minor], key=key, version=full), ""
    note = f"Kubernetes {full} is none of the releases this suite was made with ({', '.join(known)}): read with care"
    return Release(key, minor, full, key[:2] >= _GATE_SINCE), note


def _check_rights(api: Api, target: Target, context: str) -> None:
    needs = list(_each(target))
    with ThreadPoolExecutor(4) as pool:
        allowed = list(pool.map(lambda need: identities.can_i(api, *need), needs))
    lacking = [need for need, may in zip(needs, allowed, strict=True) if not may]
    if not lacking:
        return
    lines = [
        f"{verb} {plural}" + (f".{group}" if group else "") + (f"/{subresource}" if subresource else "")
        for verb, plural, group, _, _, subresource in lacking
    ]
    raise UserError(
        f"{identities.who_am_i(api).name} (context {context!r}) lacks {len(lines)} of the rights that the suite needs",
        "use an administrator's context, or have these rights granted:",
        detail="\n".join(lines),
    )


def _each(target: Target) -> Iterator[tuple[str, str, str, None, str | None, str]]:
    """Arguments of :func:`pvaffinity.identities.can_i`, one for each right."""
    label = (("", "nodes", "patch"),) if target.allow_node_labels else ()
    for group, resource, verbs in (*NEEDS, *label):
        name = "kubernetes.io/kube-apiserver-client" if resource == "signers" else None
        plural, _, subresource = resource.partition("/")
        for verb in verbs.split():
            yield verb, plural, group, None, name, subresource
