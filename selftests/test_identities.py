"""Identities: what is asked of the cluster, and that nothing of the administrator's is carried along."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509 as certs
from kubernetes import client

from pvaffinity import identities
from pvaffinity.api import Api, Response
from pvaffinity.errors import ApiError, UserError
from pvaffinity.objects import Obj, Ref


class _Admin:
    """Signs what it has approved with a fixed text, as a cluster's signer would; records what it was asked."""

    def __init__(self, conditions: list[Obj] | None = None) -> None:
        self.configuration = client.Configuration(host="https://127.0.0.1:6443")
        self.configuration.ssl_ca_cert = "/ca.crt"
        self.configuration.cert_file, self.configuration.key_file = "/admin.crt", "/admin.key"
        self.configuration.api_key = {"BearerToken": "Bearer admins"}
        self.conditions = conditions or []
        self.made: list[Obj] = []
        self.approved: list[str] = []
        self.deleted: list[Ref] = []
        self.answers: dict[str, Obj] = {}

    def create(self, obj: Obj) -> Obj:
        self.made.append(obj)
        if obj["kind"] == "ServiceAccount":
            raise ApiError(409, "AlreadyExists", "there")
        return obj

    def patch(self, ref: Ref, body: Any, *, subresource: str) -> None:
        self.approved.append(f"{ref.name}/{subresource} {body['status']['conditions'][0]['type']}")

    def delete(self, ref: Ref) -> None:
        self.deleted.append(ref)

    def snapshot(self, *_: Any, fields: str, timeout: float) -> tuple[list[Obj], str]:
        status = {"conditions": self.conditions} if self.conditions else {"certificate": _b64("CERT")}
        return [{"metadata": {"uid": "c"}, "status": status}], "1"

    def request(self, method: str, path: str, body: Any, **_: Any) -> Response:
        self.answers["asked"] = {"method": method, "path": path, "body": body}
        return Response(201, {"status": {"token": "t0ken", "allowed": True}}, ())


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_certificate_is_of_the_user_alone() -> None:
    """The request names user and groups; the client made of the answer has this certificate and no token."""
    admin = _Admin()
    user = identities.x509(admin, "Alice@example", ["devs", "qa"], seconds=60)  # type: ignore[arg-type]
    (made,) = admin.made
    spec = made["spec"]
    request = certs.load_pem_x509_csr(base64.b64decode(spec["request"]))
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == "O=qa,O=devs,CN=Alice@example"
    assert (spec["signerName"], spec["expirationSeconds"], spec["usages"]) == (
        "kubernetes.io/kube-apiserver-client",
        600,
        ["client auth"],
    )
    name = made["metadata"]["name"]
    assert name.startswith("pvaffinity-alice-example-")
    assert admin.approved == [f"{name}/approval Approved"]
    assert admin.deleted == [Ref("CertificateSigningRequest", name)]
    settings = user.configuration
    assert (user.identity, user.server, settings.ssl_ca_cert) == ("Alice@example", "https://127.0.0.1:6443", "/ca.crt")
    assert Path(settings.cert_file).read_text() == "CERT"
    assert Path(settings.key_file).read_text().startswith("-----BEGIN PRIVATE KEY-----")
    assert not settings.api_key
    directory = Path(settings.cert_file).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    del user
    assert not directory.exists()


@pytest.mark.parametrize("verdict", ["Denied", "Failed"])
def test_a_cluster_that_does_not_sign(verdict: str) -> None:
    """A request that is denied or fails is the user's to mend, and is deleted all the same."""
    admin = _Admin([{"type": verdict, "message": "no signer"}])
    with pytest.raises(UserError, match="signed no client certificate for bob") as caught:
        identities.x509(admin, "bob")  # type: ignore[arg-type]
    assert "--cluster-signing-cert-file" in caught.value.fix
    assert f"{verdict}: no signer" in caught.value.detail
    assert len(admin.deleted) == 1


def test_token_is_of_the_account_alone() -> None:
    """A service account that is there already gets a token; the client carries it and no certificate."""
    admin = _Admin()
    user = identities.service_account(admin, "ns", "bot")  # type: ignore[arg-type]
    asked = admin.answers["asked"]
    assert (asked["method"], asked["path"]) == ("POST", "/api/v1/namespaces/ns/serviceaccounts/bot/token")
    assert asked["body"]["spec"] == {"expirationSeconds": 3600}
    assert user.identity == "system:serviceaccount:ns:bot"
    assert user.configuration.api_key == {"BearerToken": "Bearer t0ken"}
    assert user.configuration.cert_file is None
    assert user._headers()["authorization"] == "Bearer t0ken"


def test_can_i() -> None:
    """The review carries what is asked and nothing empty."""
    admin = _Admin()
    assert identities.can_i(admin, "patch", "persistentvolumes", name="pv-a")  # type: ignore[arg-type]
    asked = admin.answers["asked"]
    assert asked["path"] == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert asked["body"]["spec"]["resourceAttributes"] == {
        "verb": "patch",
        "resource": "persistentvolumes",
        "name": "pv-a",
    }


def test_kubeconfig_of_a_token(tmp_path: Path) -> None:
    """The kubeconfig is private, whole, and leads back to the same credential."""
    authority = tmp_path / "ca.crt"
    authority.write_text("CA")
    settings = client.Configuration(host="https://127.0.0.1:6443")
    settings.api_key = {"BearerToken": "Bearer t0ken"}
    settings.verify_ssl = False
    path = identities.credentials_kubeconfig(Api(client.ApiClient(settings), "bot"), tmp_path / "config")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Api.from_kubeconfig(path)
    assert again.server == "https://127.0.0.1:6443"
    assert again._headers()["authorization"] == "Bearer t0ken"
    assert again.configuration.verify_ssl is False


def test_kubeconfig_of_a_certificate(tmp_path: Path) -> None:
    """Certificate, key and authority are written into the file."""
    user = identities.x509(_Admin(), "alice")  # type: ignore[arg-type]
    authority = tmp_path / "ca.crt"
    authority.write_text("CA")
    user.configuration.ssl_ca_cert = str(authority)
    document = yaml.safe_load(identities.credentials_kubeconfig(user, tmp_path / "config").read_text())
    assert document["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": _b64("CA"),
    }
    credentials = document["users"][0]["user"]
    assert credentials["client-certificate-data"] == _b64("CERT")
    assert "PRIVATE KEY" in base64.b64decode(credentials["client-key-data"]).decode()
    assert "token" not in json.dumps(document)
