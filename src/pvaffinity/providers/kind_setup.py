"""What a kind cluster needs before it is made: kind itself, a node image, a machine that can."""

from __future__ import annotations

__all__ = [
    "CLUSTER_LABEL",
    "Kind",
    "NodeImage",
    "can_be_pulled",
    "check_image",
    "check_machine",
    "check_name",
    "check_version",
    "choose_image",
    "engine_of",
    "find_kind",
    "official_image",
    "pull",
]

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from pvaffinity import inotify, room
from pvaffinity.engine import Engine, EngineError, require
from pvaffinity.errors import RoomError, UserError
from pvaffinity.local.bincache import Cache
from pvaffinity.nodeimage.recipe import LABEL, VERSION, load_recipe
from pvaffinity.paths import expanded
from pvaffinity.progress import Progress
from pvaffinity.room import Room
from pvaffinity.versions import Release, load_versions

CLUSTER_LABEL = "io.x-k8s.kind.cluster"
"""Label that kind puts on its containers; the value is the cluster's name (kind pkg/cluster/internal/providers)."""
OLDEST_KIND = (0, 30)
"""The first with the kubeadm v1beta4 documents and node images of Kubernetes 1.34."""
MEMORY_BASE, MEMORY_NODE = 700 << 20, 130 << 20
"""Bytes of a control plane and of each node, as measured in benchmarks/."""
INOTIFY_BASE, INOTIFY_NODE = 16, 15
"""inotify instances of a control plane and of each node (systemd, kubelet, containerd), measured: 92 for six nodes."""
_WHERE = ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST")
_INSTALL = "install kind 0.30 or newer (https://kind.sigs.k8s.io/docs/user/quick-start/#installation)"
_NO_CGROUP_V1 = (1, 35)  # the first whose official node image does not boot on control groups v1


@dataclass(frozen=True)
class Kind:
    """A kind program that runs."""

    binary: Path
    version: str


@dataclass(frozen=True)
class NodeImage:
    """A node image to use.

    Attributes:
        reference: for ``--image``.
        ours: made by ``pvaffinity node-image build``; needs the air-gapped overlay.
        present: the engine has it; else it must be pulled.
        version: Kubernetes' in it, as far as a label or the name tells it.
    """

    reference: str
    ours: bool
    present: bool
    version: str = field(default="", compare=False)


def engine_of(directory: Path) -> Engine:
    """The engine that the cluster of a directory was made with, whatever the environment says today.

    Raises:
        UserError: it does not answer.
    """
    try:
        environment = json.loads((directory / "kind.json").read_text(encoding="utf-8"))["engine"]
    except (OSError, ValueError, KeyError):
        return require()
    try:
        return require(environment)
    except UserError as error:
        host = "".join(f" ({key}={environment[key]})" for key in _WHERE if key in environment)
        raise UserError(
            f"its container engine is gone: {error.what}",
            f"start that engine{host}, then: pvaffinity clean; or, if it is gone for good:"
            f" rm -r {shlex.quote(str(directory))}",
        ) from error


def check_name(engine: Engine, name: str) -> None:
    """Refuse a name that is taken.

    Raises:
        UserError: a kind cluster has it, ours or somebody else's.
    """
    try:
        taken = engine.containers(f"{CLUSTER_LABEL}={name}")
    except EngineError as error:
        raise UserError(f"{engine.name} does not list its containers: {error}", f"see: {engine.name} ps") from error
    if taken:
        raise UserError(f"there is a kind cluster named {name} already", "use another name")


def find_kind(named: Path | None = None) -> Kind:
    """kind: the one named, ``$KIND_PATH``, the one on PATH, or the one ``node-image build`` made.

    Raises:
        UserError: there is none, or it is too old.
    """
    if named:
        return _kind(named, "--kind-bin")
    if path := os.environ.get("KIND_PATH"):
        return _kind(Path(path), "KIND_PATH")
    built = Cache().find(load_recipe().kind_item)
    if path := shutil.which("kind"):
        try:
            return _kind(Path(path), "PATH")
        except UserError:
            if built.state != "ok":
                raise
    if built.state == "ok":
        return _kind(built.path, "the cache")
    raise UserError("kind is not on PATH", _INSTALL)


def _kind(path: Path, where: str) -> Kind:
    path = expanded(path).absolute()
    try:
        done = subprocess.run(
            [path, "version"], capture_output=True, encoding="utf-8", errors="replace", timeout=20, check=False
        )
    except OSError as error:
        raise UserError(f"{path} (from {where}) does not run: {error.strerror}", _INSTALL) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{path} (from {where}) does not tell its version within 20 s", _INSTALL) from error
    match = re.search(r"\bv?(\d+)\.(\d+)\.(\d+\S*)", done.stdout)
    if done.returncode or not match:
        raise UserError(f"{path} (from {where}) is not kind: it does not tell a version", _INSTALL)
    if (int(match[1]), int(match[2])) < OLDEST_KIND:
        oldest = ".".join(map(str, OLDEST_KIND))
        raise UserError(f"{path} (from {where}) is kind {match[0]}, older than {oldest}", _INSTALL)
    return Kind(path, match[0].removeprefix("v"))


def official_image(release: Release) -> str:
    """The image that kind's newest release publishes for the release's minor version, by digest.

    A patch release that was asked for by its full number is taken at its word, without a digest.
    """
    for known in load_versions().releases:
        meant = release.version == known.version or f":v{release.version}@" in known.kind_image
        if known.kind_image and known.minor == release.minor and meant:
            return known.kind_image
    return f"kindest/node:v{release.version}"


def choose_image(engine: Engine, release: Release, named: str | None = None) -> NodeImage:
    """The node image for a release: the one named, the official one if present, ours if present, the official one."""
    if named:
        image = engine.image(named)
        labels = image.labels if image else {}
        in_name = re.search(r":v(\d+\.\d+\.[^@]+)", named)
        version = labels.get(VERSION, "").removeprefix("v") or (in_name[1] if in_name else "")
        return NodeImage(named, LABEL in labels, image is not None, version)
    official, ours = official_image(release), load_recipe().tag(release.version)
    if engine.image(official) is not None:
        return NodeImage(official, ours=False, present=True)
    if engine.image(ours) is not None:
        return NodeImage(ours, ours=True, present=True)
    return NodeImage(official, ours=False, present=False)


def can_be_pulled(engine: Engine, image: NodeImage) -> str:
    """Ask for the image's manifest; why it cannot be had, or an empty string."""
    try:
        engine.run("manifest", "inspect", image.reference, timeout=10)
    except EngineError as error:
        return str(error)
    return ""


def pull(engine: Engine, image: NodeImage, release: Release, progress: Progress) -> None:
    """Pull a node image.

    Raises:
        UserError: it cannot be had; says the ways out.
    """
    progress(f"pulling {image.reference}")
    try:
        engine.run("pull", "--quiet", image.reference, timeout=1800)
    except EngineError as error:
        raise UserError(
            f"the node image {image.reference} is not here and cannot be pulled: {error}",
            f"pvaffinity node-image build {release.minor} makes one without pulling; --kind-image names another;"
            " --provider local needs none",
        ) from error


def check_image(engine: Engine, image: NodeImage, release: Release) -> None:
    """Refuse an image that will not do, before it is pulled.

    Raises:
        UserError: it is of another Kubernetes, or this machine has control groups v1 and it does not boot there.
    """
    check_version(image.reference, image.version, release)
    if engine.cgroup == 1 and not image.ours and release.key[:2] >= _NO_CGROUP_V1:
        raise UserError(
            f"this machine uses control groups v1, on which the official node image of Kubernetes {release.minor}"
            " does not boot",
            "boot with systemd.unified_cgroup_hierarchy=1, or: pvaffinity node-image build"
            f" {release.minor}, or use --provider local",
        )


def check_machine(engine: Engine, nodes: int) -> None:
    """Fail early, and reserve what the cluster will take (see :mod:`pvaffinity.room`).

    Raises:
        UserError: too little memory, or inotify limits too low.
    """
    need = Room(MEMORY_BASE + nodes * MEMORY_NODE, INOTIFY_BASE + nodes * INOTIFY_NODE)
    room.reserve(
        need, lambda others: _no_memory(engine, need, others, nodes) or _no_inotify(engine, need, others, nodes)
    )


def check_version(reference: str, version: str, release: Release) -> None:
    """Refuse an image of another minor version than the release's; one that tells no version passes.

    Raises:
        UserError: what it has is not what was asked for, and the suite would expect the wrong things of it.
    """
    minor = ".".join(version.split(".")[:2])
    if minor not in ("", release.minor):
        raise UserError(
            f"the node image {reference} is Kubernetes {version}, not {release.minor}",
            f"say --kubernetes-version {minor}, or name another image",
        )


def _no_memory(engine: Engine, need: Room, others: Room, nodes: int) -> UserError | None:
    free = (psutil.virtual_memory().available if engine.local else engine.memory) - others.memory
    if free >= need.memory:
        return None
    what = f"{max(free, 0) >> 20} MB of memory are free" + (
        " beside the clusters that are being made" * bool(others.memory)
    )
    error = RoomError if engine.local else UserError  # of another machine, clusters that end give nothing back here
    return error(
        f"{what}, a kind cluster of {nodes} nodes needs about {need.memory >> 20} MB",
        "end other programs, give the engine more memory, or use --provider local",
    )


def _no_inotify(engine: Engine, need: Room, others: Room, nodes: int) -> UserError | None:
    limit = inotify.limit()
    if not engine.local or engine.rootless or limit is None:
        return None
    # The programs of nodes are root's, as is their limit: what is free can be tried by root alone.
    wanted = need.instances + others.instances
    free = (inotify.free_instances(wanted) if os.geteuid() == 0 else limit) - others.instances
    if free >= need.instances:
        return None
    return RoomError(
        f"fs.inotify.max_user_instances is {limit}, of which {max(free, 0)} are free; {nodes} nodes need about"
        f" {need.instances}",
        inotify.remedy(),
    )
