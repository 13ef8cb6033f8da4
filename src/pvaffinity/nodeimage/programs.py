"""Kubernetes' programs: those of a directory somebody names, and the images kubeadm will ask for."""

from __future__ import annotations

__all__ = ["CONTROL_PLANE", "named_programs", "needed_images"]

import json
import os
import subprocess
from pathlib import Path

from pvaffinity.errors import UserError

CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def needed_images(kubeadm: Path, version: str) -> dict[str, str]:
    """What kubeadm will ask for, by component; DNS and kube-proxy are left out of these clusters."""
    done = subprocess.run(
        [kubeadm, "config", "images", "list", f"--kubernetes-version=v{version}"],
        capture_output=True,
        text=True,
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


def named_programs(directory: Path) -> dict[str, str]:
    """Binaries in a directory by name, and under "" their version."""
    names = ("kubelet", "kubeadm", "kubectl", *CONTROL_PLANE)
    missing = [name for name in names if not os.access(directory / name, os.X_OK)]
    if missing:
        raise UserError(
            f"{directory} lacks {', '.join(missing)}",
            f"in a Kubernetes source tree: make WHAT='{' '.join(f'cmd/{name}' for name in missing)}'"
            " CGO_ENABLED=0, then name _output/bin",
        )
    told = subprocess.run(
        [directory / "kubeadm", "version", "-o", "json"], capture_output=True, text=True, timeout=60, check=False
    )
    try:
        version = json.loads(told.stdout)["clientVersion"]["gitVersion"].removeprefix("v")
    except (ValueError, KeyError):
        raise UserError(
            f"{directory / 'kubeadm'} does not tell its version", "build it with make, which stamps the version in"
        ) from None
    return {"": version, **{name: str((directory / name).absolute()) for name in names}}
