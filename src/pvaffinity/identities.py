"""Real identities: clients that carry a certificate or a token of their own and nothing of the administrator's.

Impersonation would prove less: it is decided by another rule, and the administrator's connection stays in play.
"""

from __future__ import annotations

__all__ = ["WhoAmI", "await_rule", "can_i", "credentials_kubeconfig", "service_account", "who_am_i", "x509"]

import base64
import re
import secrets
import shutil
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509 as certs
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kubernetes import client

from pvaffinity import kubeconfig
from pvaffinity.api import Api
from pvaffinity.budgets import budget_of
from pvaffinity.conditions import Condition, Look
from pvaffinity.errors import ApiError, UserError
from pvaffinity.objects import Obj, Ref, collection_path
from pvaffinity.paths import scratch_dir
from pvaffinity.waiting import WaitError, WaitTimeout, until

_SIGNER = "kubernetes.io/kube-apiserver-client"
_SHORTEST = 600  # seconds; the API refuses shorter certificates and tokens


@dataclass(frozen=True)
class WhoAmI:
    """Whom the API server takes a client for."""

    name: str
    groups: frozenset[str]


def x509(admin: Api, name: str, groups: Sequence[str] = (), seconds: int = 3600) -> Api:
    """A user with a client certificate (CN = name, O = groups), signed by the cluster through its certificates API.

    Args:
        admin: may create, approve and delete CertificateSigningRequests.
        name: the user's name.
        groups: the user's groups; ``system:authenticated`` is added by the server.
        seconds: lifetime of the certificate, at least 600.

    Raises:
        UserError: the cluster signed no certificate in time.
        ApiError: the administrator may not do this.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [certs.NameAttribute(NameOID.COMMON_NAME, name)]
    subject += [certs.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    request = certs.CertificateSigningRequestBuilder(certs.Name(subject)).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "user"
    ref = Ref("CertificateSigningRequest", f"pvaffinity-{slug}-{secrets.token_hex(4)}")
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": _SIGNER,
        "expirationSeconds": max(seconds, _SHORTEST),
        "usages": ["client auth"],
    }
    admin.create({"kind": ref.kind, "metadata": {"name": ref.name}, "spec": spec})
    try:
        approval = {"type": "Approved", "status": "True", "reason": "pvaffinity", "message": "a user of a test"}
        admin.patch(ref, {"status": {"conditions": [approval]}}, subresource="approval")
        signed = until(admin, ref, _is_signed, "bind")
    except WaitError as error:
        fix = "let kube-controller-manager sign: --cluster-signing-cert-file and --cluster-signing-key-file"
        raise UserError(f"the cluster signed no client certificate for {name}", fix, detail=str(error)) from error
    finally:
        admin.delete(ref)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return _client(admin, name, certificate=base64.b64decode(signed["status"]["certificate"]), key=private)


def service_account(admin: Api, namespace: str, name: str, seconds: int = 3600) -> Api:
    """A service account with a token of its own (TokenRequest); the account is made where it is missing.

    Args:
        admin: may create service accounts and their tokens.
        namespace: the account's namespace.
        name: the account's name.
        seconds: lifetime of the token, at least 600.

    Raises:
        ApiError: the administrator may not do this, or there is no such namespace.
    """
    ref = Ref("ServiceAccount", name, namespace)
    try:
        admin.create({"kind": ref.kind, "metadata": {"name": name, "namespace": namespace}})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": max(seconds, _SHORTEST)},
    }
    answer = admin.request("POST", f"{ref.path}/token", body, repeatable=True).body
    return _client(admin, f"system:serviceaccount:{namespace}:{name}", token=answer["status"]["token"])


def who_am_i(api: Api) -> WhoAmI:
    """Whom the server takes this client for (SelfSubjectReview, in every cluster since Kubernetes 1.28)."""
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = api.request("POST", path, kind, repeatable=True).body["status"]["userInfo"]
    return WhoAmI(user["username"], frozenset(user.get("groups") or ()))


def can_i(
    api: Api,
    verb: str,
    resource: str,
    group: str = "",
    namespace: str | None = None,
    name: str | None = None,
    subresource: str = "",
) -> bool:
    """What the server says this identity may do (SelfSubjectAccessReview); authorisation only, not admission."""
    attributes = {
        "verb": verb,
        "resource": resource,
        "group": group,
        "namespace": namespace or "",
        "name": name or "",
        "subresource": subresource,
    }
    review: Obj = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review["spec"] = {"resourceAttributes": {k: v for k, v in attributes.items() if v}}
    answer = api.request("POST", collection_path("SelfSubjectAccessReview"), review, repeatable=True)
    return bool(answer.body["status"]["allowed"])


def await_rule(api: Api, rule: Mapping[str, Any], namespace: str | None = None) -> None:
    """Wait until the API server's authoriser has seen a new rule: it reads roles and bindings from caches.

    Without the wait a denial proves nothing: the role might only not have arrived yet.

    Args:
        api: the identity that the rule was given to.
        rule: an RBAC ``PolicyRule`` on resources.
        namespace: where it is bound; None: everywhere.

    Raises:
        WaitTimeout: the rule did not come into force within the budget ``api``.
    """
    name = (rule.get("resourceNames") or [None])[0]
    group = (rule.get("apiGroups") or [""])[0]
    resource, _, subresource = rule["resources"][0].partition("/")
    budget = budget_of("api")
    end = time.monotonic() + budget.seconds
    late = False
    while not all(can_i(api, verb, resource, group, namespace, name, subresource) for verb in rule["verbs"]):
        if late:
            raise WaitTimeout(f"{api.identity} did not get {rule['verbs']} on {rule['resources']} within {budget}")
        time.sleep(0.02)
        late = time.monotonic() > end  # one more look, however long the one before had to wait for its answer


def credentials_kubeconfig(api: Api, path: Path) -> Path:
    """Write a kubeconfig with all that this client connects with, readable by its owner only; answers the path."""
    settings = api.configuration
    cluster: Obj = {"server": settings.host}
    if not settings.verify_ssl:
        cluster["insecure-skip-tls-verify"] = True
    elif settings.ssl_ca_cert:
        cluster["certificate-authority-data"] = _base64(Path(settings.ssl_ca_cert))
    if settings.tls_server_name:
        cluster["tls-server-name"] = settings.tls_server_name
    if settings.proxy:
        cluster["proxy-url"] = settings.proxy
    user: Obj = {}
    if settings.cert_file:
        user["client-certificate-data"] = _base64(Path(settings.cert_file))
        user["client-key-data"] = _base64(Path(settings.key_file or settings.cert_file))
    if settings.api_key:
        user["token"] = next(iter(settings.api_key.values())).removeprefix("Bearer ")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": api.identity, "user": user}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": api.identity}}],
        "current-context": "context",
    }
    return kubeconfig.write_private(document, path)


def _client(admin: Api, identity: str, *, certificate: bytes = b"", key: bytes = b"", token: str = "") -> Api:
    """The administrator's server and trust, and these credentials only."""
    theirs = admin.configuration
    settings = client.Configuration()
    settings.connection_pool_maxsize = theirs.connection_pool_maxsize
    same = ("host", "verify_ssl", "ssl_ca_cert", "ca_cert_data", "assert_hostname", "tls_server_name")
    for name in (*same, "proxy", "no_proxy", "proxy_headers"):
        setattr(settings, name, getattr(theirs, name))
    if token:
        settings.api_key = {"BearerToken": f"Bearer {token}"}
    if not certificate:
        return Api(client.ApiClient(settings), identity)
    directory = scratch_dir("identity")
    settings.cert_file, settings.key_file = str(directory / "tls.crt"), str(directory / "tls.key")
    (directory / "tls.crt").write_bytes(certificate)
    (directory / "tls.key").write_bytes(key)
    api = Api(client.ApiClient(settings), identity)
    weakref.finalize(api, shutil.rmtree, directory, ignore_errors=True)
    return api


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _signed(obj: Obj | None) -> Look:
    status = (obj or {}).get("status") or {}
    refusals = [c for c in status.get("conditions") or () if c["type"] in ("Denied", "Failed")]
    if refusals:
        return Look("terminal", f"{refusals[0]['type']}: {refusals[0].get('message', '')}")
    return Look("met", "signed") if status.get("certificate") else Look("not yet", "approved, not signed")


_is_signed = Condition("signed", _signed, "bind")
