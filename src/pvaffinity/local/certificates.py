"""The cluster's own certificate authority, the certificates it signs, and kubeconfigs that carry them."""

from __future__ import annotations

__all__ = ["Authority", "kubeconfig"]

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pvaffinity.local import network

SERVER_NAMES = (
    "localhost",
    "127.0.0.1",
    "::1",
    network.API_ADDRESS,
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""The names under which the API server is reached (as in kubeadm's apiserver certificate)."""


@dataclass(frozen=True)
class Pair:
    """Files of one certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs for one cluster, into one directory that only its user may read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        self._ca = trustme.CA(organization_name="pvaffinity", organization_unit_name="local cluster")
        self.directory = directory
        self.ca = Pair(directory / "ca.crt", directory / "ca.key")
        self.ca.certificate.write_bytes(self._ca.cert_pem.bytes())
        _secret(self.ca.key, self._ca.private_key_pem.bytes())

    def issue(self, file: str, *names: str, user: str | None = None, group: str | None = None) -> Pair:
        """Sign a certificate: ``names`` for a server, ``user`` (CN) and ``group`` (O) for a client."""
        # without any name trustme writes an empty critical extension, which Go refuses
        leaf = self._ca.issue_cert(*(names or ("client.local",)), common_name=user, organization_name=group)
        pair = Pair(self.directory / f"{file}.crt", self.directory / f"{file}.key")
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        _secret(pair.key, leaf.private_key_pem.bytes())
        return pair

    def signing_key(self, file: str) -> Pair:
        """A key pair for ServiceAccount tokens: public half and private half."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self.directory / f"{file}.pub", self.directory / f"{file}.key")
        pair.certificate.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        _secret(
            pair.key,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            ),
        )
        return pair


def kubeconfig(path: Path, server: str, authority: Pair, client: Pair, name: str) -> Path:
    """Write a kubeconfig with everything embedded, readable by its user alone."""

    def embedded(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": embedded(authority.certificate)},
            }
        ],
        "users": [
            {
                "name": "admin",
                "user": {
                    "client-certificate-data": embedded(client.certificate),
                    "client-key-data": embedded(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "current-context": name,
    }
    _secret(path, json.dumps(document, indent=1).encode())
    return path


def _secret(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
