"""Make a node image: binaries, root file system, the control plane's images, and a container to put them together."""

from __future__ import annotations

__all__ = ["BuiltImage", "build", "list_images"]

import contextlib
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from pvaffinity.engine import Engine, EngineError
from pvaffinity.errors import UserError
from pvaffinity.local.binaries import fetch
from pvaffinity.local.bincache import Item, writing
from pvaffinity.local.reporter import Reporter
from pvaffinity.nodeimage.archive import Entry, ScratchImage, add, write_archive
from pvaffinity.nodeimage.programs import CONTROL_PLANE, named_programs, needed_images
from pvaffinity.nodeimage.recipe import LABEL, OWN, REPOSITORY, VERSION, Recipe, load_recipe
from pvaffinity.nodeimage.rootfs import ensure_rootfs
from pvaffinity.nodeimage.workplace import CACHE_BYTES, check_room, container_of, full_disk, scratch, unfinished
from pvaffinity.paths import cache_dir
from pvaffinity.progress import Progress, quiet
from pvaffinity.versions import Release

_SETTINGS = (
    'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
    "ENV container=docker",
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "WORKDIR /",
)


@dataclass(frozen=True)
class BuiltImage:
    """A node image of ours that the engine has.

    Attributes:
        current: made by the recipe as it is now.
        size: bytes.
        own: of binaries that somebody named.
    """

    name: str
    version: str
    current: bool
    size: int
    own: bool = False


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
    named = named_programs(binaries, release) if binaries else None
    version = named.version if named else release.version
    name = recipe.tag(version, named.digest if named else "")
    locks = cache_dir() / "rootfs"
    with writing(locks):
        locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / f"{name.rpartition(':')[2]}.lock"):
        if not again and engine.image(name):
            return name
        check_room(engine, recipe)
        try:
            _build(recipe, release, version, name, named.paths if named else {}, engine, reporter)
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
            image = engine.image(name)
            current, own = bool(image and image.labels.get(LABEL) == recipe.hash), bool(image and OWN in image.labels)
            found.append(BuiltImage(name, match[1].replace("_", "+"), current, size, own))
    return sorted(found, key=lambda image: image.name)


def _build(
    recipe: Recipe,
    release: Release,
    version: str,
    name: str,
    named: Mapping[str, Path],
    engine: Engine,
    reporter: Reporter,
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
    with scratch(rootfs.parent) as work, container_of(engine, recipe.base) as container:
        archive = work / "images.tar"
        reporter.say("writing the control plane's images")
        with tarfile.open(rootfs) as contents:
            busybox = contents.extractfile("./usr/bin/busybox") or contents.extractfile("./bin/busybox")
            assert busybox
            small = busybox.read()
        with writing(rootfs.parent, CACHE_BYTES):
            write_archive(archive, _images(recipe, needed, paths, small), work)
        reporter.say("copying programs into the node")
        files = work / "files.tar"
        _write_files(recipe, version, paths, files)
        with files.open("rb") as stream:
            engine.run("cp", "-", f"{container}:/", source=stream, timeout=600)
        files.unlink()
        reporter.say("importing images into the node")
        with archive.open("rb") as stream:
            engine.run("exec", "--interactive", container, "sh", "-c", _IMPORT, source=stream, timeout=600)
        reporter.say("committing")
        before = engine.image(name)
        changes = [*_SETTINGS, f"LABEL {LABEL}={recipe.hash}", f"LABEL {VERSION}=v{version}"]
        changes += [f"LABEL {OWN}=yes"] * bool(named)
        options = [word for change in changes for word in ("--change", change)]
        # Named only when it is whole: of an interrupted commit the engine may keep what was there by then.
        engine.run("commit", *options, container, unfinished(container), timeout=600, patient=True)
        engine.run("tag", unfinished(container), name)
        if before:
            with contextlib.suppress(EngineError):  # a node that still runs keeps it
                engine.run("image", "rm", before.id)
    reporter.say(f"done in {reporter.elapsed:.0f} s: {name}")


_IMPORT = """
set -e
containerd >/tmp/containerd.log 2>&1 &
for _ in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
ctr --namespace k8s.io images import --local --no-unpack --digests - 2>/tmp/ctr.log || {
  cat /tmp/containerd.log /tmp/ctr.log >&2
  exit 1
}
kill $!
wait $! || true
rm -rf /run/containerd /var/lib/containerd-overlayfs
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
    with writing(target.parent, CACHE_BYTES), tarfile.open(target, "w") as archive:
        for entry in entries:
            add(archive, entry)


def _as_user_error(error: EngineError, engine: Engine) -> UserError:
    return full_disk(error, engine) or UserError(
        f"{engine.name} could not make the node image: {error}",
        f"see whether privileged containers run at all: {engine.name} run --rm --privileged {load_recipe().base} true",
    )
