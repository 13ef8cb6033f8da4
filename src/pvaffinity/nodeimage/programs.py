"""Kubernetes' programs: those of a directory somebody names, and the images kubeadm will ask for."""

from __future__ import annotations

__all__ = ["CONTROL_PLANE", "Named", "named_programs", "needed_images"]

import hashlib
import os
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.local.bincache import host
from pvaffinity.local.probe import version_of
from pvaffinity.versions import Release

_PT_INTERP = 3
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class Named:
    """Kubernetes' binaries in a directory that somebody named.

    Attributes:
        version: without the leading ``v``.
        digest: of the contents of all.
    """

    version: str
    paths: Mapping[str, Path]
    digest: str


def needed_images(kubeadm: Path, version: str) -> dict[str, str]:
    """What kubeadm will ask for, by component; DNS and kube-proxy are left out of these clusters."""
    done = subprocess.run(
        [kubeadm, "config", "images", "list", f"--kubernetes-version=v{version}"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        check=False,
        env={"PATH": os.defpath, "HOME": "/nonexistent"},
    )
    names = {name.rpartition(":")[0].rpartition("/")[2]: name for name in done.stdout.split()}
    if not {"etcd", "pause", *CONTROL_PLANE} <= names.keys():
        raise UserError(
            f"{kubeadm} does not tell which images it needs: {(done.stderr or 'no message').strip().splitlines()[-1]}",
            "name binaries of one Kubernetes version, built for this machine",
        )
    return names


def named_programs(directory: Path, release: Release) -> Named:
    """Binaries in a directory, which must be of one version, and that version of the release's minor version.

    Raises:
        UserError: one is missing, does not run, or is of another version; the control plane's are not static.
    """
    directory = directory.absolute()
    names = ("kubelet", "kubeadm", "kubectl", *CONTROL_PLANE)
    missing = [name for name in names if not os.access(directory / name, os.X_OK)]
    if missing:
        raise UserError(
            f"{directory} lacks {', '.join(missing)}",
            f"in a Kubernetes source tree: make WHAT='{' '.join(f'cmd/{name}' for name in missing)}'"
            " CGO_ENABLED=0, then name _output/bin",
        )
    versions = {name: _version(directory / name) for name in names}
    version = versions["kubeadm"]
    for name, other in versions.items():
        if other != version:
            raise UserError(
                f"{directory / name} is version {other}, but kubeadm there is {version}",
                "build all six from one commit",
            )
    if version.split(".")[:2] != release.minor.split("."):
        minor = ".".join(version.split(".")[:2])
        raise UserError(
            f"the binaries in {directory} are Kubernetes {version}, not {release.minor}",
            f"pvaffinity node-image build {minor} --binaries {directory}; if {minor} is not known: say so in [next] of"
            " clusterconfigs/versions.toml",
        )
    for name in CONTROL_PLANE:
        if not _static(directory / name):
            raise UserError(
                f"{directory / name} needs a C library, and its image has none", "build it with CGO_ENABLED=0"
            )
    digest = hashlib.sha256()
    for name in names:
        with (directory / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return Named(version, {name: directory / name for name in names}, digest.hexdigest())


def _version(path: Path) -> str:
    try:
        return version_of(path, path.name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} does not run: {getattr(error, 'strerror', '') or error}",
            f"put a {path.name} for {'/'.join(host())} there, built with make, which stamps the version in",
        ) from error


def _static(path: Path) -> bool:
    """Whether a program needs no interpreter, that is, no dynamic loader (elf(5), PT_INTERP)."""
    with path.open("rb") as file:
        header = file.read(64)
        if header[:4] != b"\x7fELF" or header[4] != 2:
            return True  # a script or what else; whether it runs is another question
        order = "<" if header[5] == 1 else ">"
        (offset,) = struct.unpack_from(f"{order}Q", header, 32)
        size, count = struct.unpack_from(f"{order}HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
    return all(struct.unpack_from(f"{order}I", table, size * n)[0] != _PT_INTERP for n in range(count))
