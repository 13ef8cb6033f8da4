"""Make a node image: binaries, root file system, the control plane's images, and a container to put them together."""

from __future__ import annotations

__all__ = ["BuiltImage", "build", "list_images"]

import contextlib
import os
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from pvaffinity.engine import Engine, EngineError
from pvaffinity.errors import UserError
from pvaffinity.local.binaries import fetch
from pvaffinity.local.bincache import Item, disk_full, writing
from pvaffinity.local.owner import Owner
from pvaffinity.local.reporter import Reporter
from pvaffinity.nodeimage.archive import Entry, ScratchImage, add, write_archive
from pvaffinity.nodeimage.programs import CONTROL_PLANE, named_programs, needed_images
from pvaffinity.nodeimage.recipe import LABEL, REPOSITORY, Recipe, load_recipe
from pvaffinity.nodeimage.rootfs import ensure_rootfs
from pvaffinity.paths import cache_dir
from pvaffinity.progress import Progress, quiet
from pvaffinity.versions import Release

_NAME = "pvaffinity-build"
"""Containers in which an image is put together are named ``pvaffinity-build-PID-START-…`` after the process that does
it. Not a label: the image would hand it down to every node."""

_NEED_ENGINE = 3_000_000_000  # bytes: base, container and image, measured 2.2 GB
_NEED_CACHE = 1_500_000_000  # bytes: two archives
_SETTINGS = (
    'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
    "ENV container=docker",
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "WORKDIR /",
)


@dataclass(frozen=True)
class BuiltImage:
    """A node image of ours that the engine has."""

    name: str
    version: str
    current: bool
    size: int


def build(
    release: Release,
    engine: Engine,
    *,
    binaries: Path | None = None,
    again: bool = False,
    progress: Progress = quiet,
    every: float = 15.0,
) -> str:
    """Make the node image of a release, unless the engine has it; returns its name.

    Args:
        release: which.
        engine: where the image is made and kept.
        binaries: a directory with kubelet, kubeadm, kubectl, kube-apiserver, kube-controller-manager and
            kube-scheduler, instead of a build: what ``make`` leaves in ``_output/bin`` of a Kubernetes tree.
        again: make it even if it is there.
        progress: told what is going on, at least every ``every`` seconds.
        every: seconds.

    Raises:
        UserError: a tool is missing, a disk is full, a binary cannot be had.
    """
    recipe, reporter = load_recipe(), Reporter(progress, every)
    named = named_programs(binaries) if binaries else {}
    version = named[""] if named else release.version
    name = recipe.tag(version)
    locks = cache_dir() / "rootfs"
    with writing(locks):
        locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / f"{name.rpartition(':')[2]}.lock"):
        if not again and not binaries and engine.image(name):
            return name
        _check_room(engine)
        try:
            _build(recipe, release, version, {k: Path(v) for k, v in named.items() if k}, engine, reporter)
        except EngineError as error:
            raise _as_user_error(error, engine) from error
    return name


def list_images(engine: Engine) -> list[BuiltImage]:
    """The node images of ours that the engine has, bases left out."""
    recipe, found = load_recipe(), []
    text = engine.run("image", "ls", "--filter", f"label={LABEL}", "--format", "{{.Repository}}:{{.Tag}}")
    for name in text.split():
        name = name.removeprefix("localhost/")
        match = re.fullmatch(re.escape(REPOSITORY) + r":v(.+)-([0-9a-f]{10})", name)
        if match:
            size = int(engine.run("image", "inspect", "--format", "{{.Size}}", name))
            found.append(BuiltImage(name, match[1].replace("_", "+"), match[2] == recipe.hash, size))
    return sorted(found, key=lambda image: image.name)


def _build(
    recipe: Recipe, release: Release, version: str, named: Mapping[str, Path], engine: Engine, reporter: Reporter
) -> None:
    progress = reporter.say
    released = [] if named else recipe.kubernetes(release)
    got = fetch(released, progress=progress, every=reporter.every)
    got |= fetch(
        [*recipe.runtime, recipe.kind_item], progress=progress, every=reporter.every, sources=("build",)
    )  # of these no single programs are published
    paths = {item.name: path for item, path in got.items()} | dict(named)
    needed = needed_images(paths["kubeadm"], version)
    etcd = Item("etcd", needed["etcd"].rpartition(":")[2].partition("-")[0], "etcd")
    paths["etcd"] = fetch([etcd], progress=progress, every=reporter.every)[etcd]
    rootfs = ensure_rootfs(recipe, reporter)
    reporter.start(f"node image v{version}")
    if not engine.image(recipe.base):
        reporter.say("importing Debian")
        engine.run("import", "--change", f"LABEL {LABEL}={recipe.hash}", str(rootfs), recipe.base, timeout=600)
    with _scratch(rootfs.parent) as scratch, _container(engine, recipe.base) as container:
        archive = scratch / "images.tar"
        reporter.say("writing the control plane's images")
        with tarfile.open(rootfs) as contents:
            busybox = contents.extractfile("./usr/bin/busybox") or contents.extractfile("./bin/busybox")
            assert busybox
            small = busybox.read()
        write_archive(archive, _images(recipe, needed, paths, small), scratch)
        reporter.say("copying programs into the node")
        files = scratch / "files.tar"
        _write_files(recipe, version, paths, files)
        with files.open("rb") as stream:
            engine.run("cp", "-", f"{container}:/", source=stream, timeout=600)
        files.unlink()
        reporter.say("importing images into the node")
        with archive.open("rb") as stream:
            engine.run("exec", "--interactive", container, "sh", "-c", _IMPORT, source=stream, timeout=600)
        reporter.say("committing")
        before = engine.image(recipe.tag(version))
        changes = [*_SETTINGS, f"LABEL {LABEL}={recipe.hash}", f"LABEL pvaffinity.dev/kubernetes=v{version}"]
        options = [word for change in changes for word in ("--change", change)]
        engine.run("commit", *options, container, recipe.tag(version), timeout=600)
        if before:
            with contextlib.suppress(EngineError):  # a node that still runs keeps it
                engine.run("image", "rm", before.id)
    reporter.say(f"done in {reporter.elapsed:.0f} s: {recipe.tag(version)}")


_IMPORT = """
set -e
containerd >/tmp/containerd.log 2>&1 &
for _ in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
ctr --namespace k8s.io images import --local --no-unpack --digests - || { cat /tmp/containerd.log >&2; exit 1; }
kill $!
wait $! || true
rm -rf /tmp/containerd.log /run/containerd /var/lib/containerd-overlayfs
"""
"""Without unpacking: a snapshot would be copied into every node's /var, and only control planes need most."""


def _images(recipe: Recipe, needed: Mapping[str, str], paths: Mapping[str, Path], busybox: bytes) -> list[ScratchImage]:
    programs = [
        ScratchImage([needed[name]], [Entry(f"usr/local/bin/{name}", paths[name], 0o755)])
        for name in (*CONTROL_PLANE, "etcd")
    ]
    names = ("sh", "cat", "date", "echo", "ls", "mkdir", "mv", "rm", "sleep", "sync", "tail", "test", "touch", "true")
    shell = [Entry("bin/busybox", busybox, 0o755), *(Entry(f"bin/{name}", link="busybox") for name in names)]
    pause = Entry("pause", recipe.directory.joinpath("pause").read_bytes(), 0o755)
    return [
        *programs,
        ScratchImage(sorted({*recipe.pause, needed["pause"]}), [*shell, pause], ["/pause"]),
        ScratchImage(recipe.busybox, [*shell, Entry("tmp/.keep")], ["/bin/sh"]),
    ]


def _write_files(recipe: Recipe, version: str, paths: Mapping[str, Path], target: Path) -> None:
    own = recipe.directory
    entries = [
        *(Entry(f"usr/bin/{name}", paths[name], 0o755) for name in ("kubelet", "kubeadm", "kubectl")),
        *(Entry(f"usr/local/bin/{item.name}", paths[item.name], 0o755) for item in recipe.runtime),
        *(Entry(f"usr/local/bin/{name}", own / name, 0o755) for name in ("entrypoint", "prepare-cgroups")),
        *(Entry(f"etc/systemd/system/{name}.service", own / f"{name}.service") for name in ("kubelet", "containerd")),
        *(
            Entry(f"etc/systemd/system/multi-user.target.wants/{name}.service", link=f"../{name}.service")
            for name in ("kubelet", "containerd")
        ),
        *(Entry(f"etc/systemd/system/{name}", link="/dev/null") for name in recipe.masked),
        Entry("etc/systemd/system/default.target", link="/lib/systemd/system/multi-user.target"),
        Entry("etc/containerd/config.toml", own / "containerd.toml"),
        Entry("etc/cni/pods.conflist.template", own / "pods.conflist.template"),
        Entry("etc/crictl.yaml", b"runtime-endpoint: unix:///run/containerd/containerd.sock\n"),
        Entry("kind/version", f"v{version}".encode()),
        Entry("kind/manifests/default-storage.yaml", own / "default-storage.yaml"),
    ]
    with writing(target), tarfile.open(target, "w") as archive:
        for entry in entries:
            add(archive, entry)


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A directory for archives; gone afterwards, as are those of builders that were killed."""
    for left in parent.glob(".build-*-*-*"):
        pid, start = left.name.split("-")[1:3]
        if not Owner(int(pid), int(start)).alive:
            shutil.rmtree(left, ignore_errors=True)
    me = Owner.of(os.getpid())
    with writing(parent):
        path = Path(tempfile.mkdtemp(prefix=f".build-{me.pid}-{me.start}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _container(engine: Engine, image: str) -> Iterator[str]:
    """A running container of the base image; gone afterwards, as are those of builders that were killed."""
    remove_abandoned(engine)
    me = Owner.of(os.getpid())
    name = f"{_NAME}-{me.pid}-{me.start}-{secrets.token_hex(4)}"
    try:
        # It ends, and is removed, by itself after an hour: even if nobody is left to remove it. The image gets its stop
        # signal (systemd's) from here, since commit cannot set one.
        engine.run(
            "run", "--detach", "--rm", "--privileged", "--network=none", f"--name={name}",
            "--tmpfs=/tmp", "--tmpfs=/run", "--stop-signal=SIGRTMIN+3", image, "sleep", "3600", timeout=120,
        )  # fmt: skip
        yield name
    finally:
        with contextlib.suppress(EngineError):
            engine.run("rm", "--force", "--volumes", name)


def remove_abandoned(engine: Engine) -> int:
    """Remove containers of builds whose process is gone; returns how many."""
    count = 0
    for name in engine.run("ps", "--all", "--filter", f"name={_NAME}-", "--format", "{{.Names}}").split():
        match = re.fullmatch(rf"{_NAME}-(\d+)-(\d+)-[0-9a-f]+", name)
        if match and not Owner(int(match[1]), int(match[2])).alive:
            with contextlib.suppress(EngineError):
                engine.run("rm", "--force", "--volumes", name)
                count += 1
    return count


def _check_room(engine: Engine) -> None:
    needs = {cache_dir(): _NEED_CACHE, engine.data_root(): _NEED_ENGINE}
    for place, need in needs.items():
        if place and place.is_dir() and shutil.disk_usage(place).free < need:
            raise disk_full(place, need)


def _as_user_error(error: EngineError, engine: Engine) -> UserError:
    text = str(error)
    if "no space left on device" in text.lower():
        return UserError(
            f"{engine.name} has no space left on its disk: {text}",
            f"free some: {engine.name} image prune, {engine.name} volume prune",
        )
    return UserError(
        f"{engine.name} could not make the node image: {text}",
        f"see whether privileged containers run at all: {engine.name} run --rm --privileged {load_recipe().base} true",
    )
