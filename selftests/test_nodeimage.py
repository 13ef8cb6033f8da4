"""Node images: the name follows from the contents, archives are what an engine reads, and failures are told."""

import collections
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from pvaffinity.engine import EngineError
from pvaffinity.errors import UserError
from pvaffinity.local.owner import Owner
from pvaffinity.local.reporter import Reporter
from pvaffinity.nodeimage import programs, rootfs, workplace
from pvaffinity.nodeimage.archive import Entry, ScratchImage, write_archive
from pvaffinity.nodeimage.recipe import airgap_dir, load_recipe
from pvaffinity.versions import load_versions
from selftests.awaiting import ended, eventually


def test_the_name_follows_from_the_files(tmp_path):
    """Any change to any file of the recipe gives another tag; the same files give the same."""
    copy = shutil.copytree(airgap_dir(), tmp_path / "airgap")
    assert load_recipe(copy).tag("1.37.2") == load_recipe().tag("1.37.2")
    for file in sorted(copy.iterdir()):
        with file.open("a") as handle:
            handle.write("\n")
        load_recipe.cache_clear()
        assert load_recipe(copy).tag("1.37.2") != load_recipe(airgap_dir()).tag("1.37.2"), file.name
        shutil.copy(airgap_dir() / file.name, file)
    load_recipe.cache_clear()


def test_a_broken_recipe_is_told(tmp_path):
    """A recipe that cannot be read is a line, not a stack trace."""
    (tmp_path / "recipe.toml").write_text("debian = 'bookworm'\n")
    with pytest.raises(UserError, match=r"recipe\.toml cannot be used"):
        load_recipe(tmp_path)


def test_archives_are_what_docker_save_writes(tmp_path):
    """Layers and configurations are found under the hashes that name them; the same contents give the same bytes."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    images = [
        ScratchImage(["a/b:1", "a/b:2"], [Entry("bin/x", program, 0o755), Entry("bin/y", link="x")], ["/bin/x"]),
        ScratchImage(["c:1"], [Entry("etc/z", b"z")]),
    ]
    for name in ("one.tar", "two.tar"):
        (scratch := tmp_path / f"{name}.d").mkdir()
        write_archive(tmp_path / name, images, scratch)
        assert not list(scratch.iterdir())
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()

    with tarfile.open(tmp_path / "one.tar") as archive:
        manifest = json.load(archive.extractfile("manifest.json"))
        assert [image["RepoTags"] for image in manifest] == [["a/b:1", "a/b:2"], ["c:1"]]
        for image in manifest:
            text = archive.extractfile(image["Config"]).read()
            assert image["Config"] == f"{hashlib.sha256(text).hexdigest()}.json"
            layer = archive.extractfile(image["Layers"][0]).read()
            assert json.loads(text)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        with tarfile.open(fileobj=archive.extractfile(manifest[0]["Layers"][0])) as layer:
            assert layer.getmember("bin/x").mode == 0o755
            assert layer.getmember("bin/y").linkname == "x"


def test_binaries_of_ones_own_are_checked(tmp_path):
    """A directory that lacks some is refused with the command that builds them; kubeadm tells the version."""
    find = load_versions().find
    (tmp_path / "kubelet").touch(0o755)
    with pytest.raises(UserError, match="lacks kubeadm, kubectl") as caught:
        programs.named_programs(tmp_path, find("next"))
    assert "cmd/kubeadm cmd/kubectl" in caught.value.fix

    def put(name, version):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} v{version}\n")
        (tmp_path / name).chmod(0o755)

    for name in ("kubelet", "kubeadm", "kubectl", *programs.CONTROL_PLANE):
        put(name, "1.38.0-beta.0.12+abc")
    named = programs.named_programs(tmp_path, find("next"))
    assert named.version == "1.38.0-beta.0.12+abc"
    with pytest.raises(UserError, match=r"are Kubernetes 1\.38\.0-beta\.0\.12\+abc, not 1\.37") as caught:
        programs.named_programs(tmp_path, find("1.37"))
    assert "pvaffinity node-image build 1.38 --binaries" in caught.value.fix
    put("kubectl", "1.38.1")
    with pytest.raises(UserError, match=r"kubectl is version 1\.38\.1, but kubeadm there is 1\.38\.0-beta"):
        programs.named_programs(tmp_path, find("next"))
    (tmp_path / "kubectl").write_bytes(b"\x7fELF for another machine")
    with pytest.raises(UserError, match="kubectl does not run"):
        programs.named_programs(tmp_path, find("next"))


def test_programs_that_need_a_c_library_are_told_apart():
    """This Python needs a dynamic loader, as programs do that were built with CGO; a script needs none."""
    assert not programs._static(Path(sys.executable).resolve())
    assert programs._static(Path(__file__))


def test_an_image_of_ones_own_binaries_has_a_name_of_its_own():
    """Binaries that tell a released version do not take the released image's place; a version becomes a valid tag."""
    recipe = load_recipe()
    assert recipe.tag("1.37.2", "a") != recipe.tag("1.37.2")
    assert recipe.tag("1.37.2", "a") != recipe.tag("1.37.2", "b")
    assert recipe.tag("1.38.0-beta.0.12+abc").startswith("pvaffinity.dev/node:v1.38.0-beta.0.12_abc-")


@pytest.mark.parametrize("shared", [True, False], ids=["one-disk", "two-disks"])
def test_a_full_disk_is_told_before_work_begins(tmp_path, monkeypatch, shared):
    """The disk is named, with what is free and what is needed: the engine's, the cache's, or one that is both."""
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path))
    elsewhere = Path("/dev/shm")
    if not shared and elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    free = {tmp_path: 4e9, elsewhere: 1e9}
    usage = collections.namedtuple("usage", "free")
    monkeypatch.setattr(workplace.shutil, "disk_usage", lambda path: usage(free[path]))
    root = tmp_path if shared else elsewhere
    engine = SimpleNamespace(name="docker", data_root=lambda: root)
    both = "4.0 GB are free on the disk of the cache .* and docker's images .*; a node image takes 5.5 GB"
    one = "1.0 GB are free on the disk of docker's images (/dev/shm); a node image takes 3.0 GB"
    with pytest.raises(UserError, match=both if shared else re.escape(one)) as caught:
        workplace.check_room(engine, load_recipe())
    assert "docker image prune" in caught.value.fix


def test_a_disk_that_fills_while_building_is_told():
    """Whatever line of the engine's messages says it, the disk and what is needed are named."""
    engine = SimpleNamespace(name="docker", data_root=lambda: Path("/var/lib/docker"))
    error = EngineError("exit status 1", "ctr: write /kind/x: no space left on device\nexit status 1\n")
    told = workplace.full_disk(error, engine)
    assert "docker has no space left on its disk (/var/lib/docker); a node image takes 3.0 GB" in told.what
    assert workplace.full_disk(EngineError("no such container"), engine) is None


class Recorder:
    """An engine that has containers and images, and writes down what it is told."""

    name = "docker"

    def __init__(self, containers, images):
        self.containers, self.images, self.told = containers, images, []

    def run(self, *arguments, **_):
        """Lists what there is; all else is only written down."""
        if arguments[:2] == ("ps", "--all"):
            return "\n".join(self.containers)
        if arguments[:2] == ("image", "ls"):
            return "\n".join(self.images)
        self.told.append(" ".join(arguments))
        return ""


def test_what_killed_builds_left_in_the_engine_is_removed():
    """Containers and unfinished images go if their builder has ended; a living builder's, and any other, stay.

    So do those of another machine that shares the engine, where process numbers mean other processes.
    """
    me, ours, gone = Owner.of(os.getpid()), f"pvaffinity-build-{workplace.place()}", "4190000-1"
    dead, living = f"{ours}-{gone}-0a0a", f"{ours}-{me.pid}-{me.start}-0b0b"
    others = [f"pvaffinity-build-0123456789ab-{gone}-0c0c", f"pvaffinity-build-{gone}-0d0d"]
    images = [workplace.unfinished(dead), workplace.unfinished(living), load_recipe().tag("1.37.2"), "<none>:<none>"]
    images += [workplace.unfinished(other) for other in others]
    engine = Recorder([dead, living, "pvaffinity-build-mine", *others], images)
    assert workplace.remove_abandoned(engine) == 2
    assert engine.told == [f"rm --force --volumes {dead}", f"image rm --force {workplace.unfinished(dead)}"]


def test_an_interrupted_build_removes_its_container_and_what_is_unfinished():
    """Whatever ends the work, the container it was done in goes, and the image that was not yet named."""
    engine = Recorder([], [])
    with pytest.raises(KeyboardInterrupt), workplace.container_of(engine, "base") as container:
        raise KeyboardInterrupt
    assert container.startswith(f"pvaffinity-build-{workplace.place()}-{os.getpid()}-")
    assert engine.told[0].startswith("run --detach --rm --privileged")
    assert engine.told[1:] == [
        f"rm --force --volumes {container}",
        f"image rm --force {workplace.unfinished(container)}",
    ]


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """A stand-in for mmdebstrap, and an empty cache."""
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(rootfs, "_KEYRING", tmp_path)
    (tmp_path / "bin").mkdir()

    def put(script):
        tool = tmp_path / "bin" / "mmdebstrap"
        tool.write_text(f"#!/bin/sh\nfor last; do case $last in *.part) part=$last;; esac; done\n{script}\n")
        tool.chmod(0o755)

    return put


def test_the_root_file_system_is_made_once(debian, tmp_path):
    """What mmdebstrap wrote is kept whole; the second time it is not called."""
    debian(f'echo x >>{tmp_path}/calls; echo content >"$part"')
    first = rootfs.ensure_rootfs(load_recipe(), Reporter())
    assert first.read_text() == "content\n"
    assert rootfs.ensure_rootfs(load_recipe(), Reporter()) == first
    assert (tmp_path / "calls").read_text() == "x\n"


@pytest.mark.parametrize(
    "script,what,fix",
    [
        ("echo half >$part; echo 'E: Failed to fetch http://x' >&2; exit 1", "Failed to fetch", "mirror"),
        ("echo half >$part; echo 'tar: No space left on device' >&2; exit 2", "no space left", "free some"),
        ("echo 'E: newuidmap is missing'; exit 1", "newuidmap", "uidmap"),
    ],
    ids=["network", "disk", "uidmap"],
)  # fmt: skip
def test_what_mmdebstrap_cannot_do_is_told(debian, script, what, fix):
    """Its first error is shown, with what helps, and half an archive is never kept."""
    debian(script)
    with pytest.raises(UserError, match=what) as caught:
        rootfs.ensure_rootfs(load_recipe(), Reporter())
    assert fix in caught.value.fix
    directory = Path(os.environ["PVAFFINITY_CACHE"]) / "rootfs"
    assert not [*directory.glob("*.part"), *directory.glob("*.tar")]


def test_missing_tools_are_named(debian, monkeypatch, tmp_path):
    """Without mmdebstrap, or Debian's keyring, the packages to install are named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="mmdebstrap is not installed") as caught:
        rootfs.ensure_rootfs(load_recipe(), Reporter())
    assert "apt-get install mmdebstrap" in caught.value.fix


def test_what_a_killed_maker_left_is_removed(debian):
    """An unpacked tree and half an archive of a maker that was killed go with the next one."""
    directory = Path(os.environ["PVAFFINITY_CACHE"]) / "rootfs"
    (directory / "mmdebstrap.abcd" / "etc").mkdir(parents=True)
    (directory / "bookworm-0.part").touch()
    debian('echo content >"$part"')
    made = rootfs.ensure_rootfs(load_recipe(), Reporter())
    assert {path for path in directory.iterdir() if path.suffix not in (".lock", ".log")} == {made}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_an_interrupted_mmdebstrap_is_ended(debian, tmp_path, number):
    """Whatever ends the build ends mmdebstrap, too: a second one would write to the same files."""
    # Its first process ignores the signal and waits for the one that works, as mmdebstrap's does.
    works = tmp_path / "works.py"
    works.write_text(f"""
import os, pathlib, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
pathlib.Path("{tmp_path}/pid").write_text(str(os.getpid()))
time.sleep(300)
""")
    debian(f"echo half >$part; trap '' INT; {sys.executable} {works} & wait")
    code = """
from pvaffinity.nodeimage import rootfs, recipe
from pvaffinity.local.owner import Owner
from pvaffinity.local.reporter import Reporter
import pathlib, sys
rootfs._KEYRING = pathlib.Path(sys.argv[1])
rootfs.ensure_rootfs(recipe.load_recipe(), Reporter())
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL)
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 120)
    process.send_signal(number)
    process.wait(120)
    eventually(lambda: ended(int((tmp_path / "pid").read_text())), 120)
    if number == signal.SIGINT:
        assert not list((tmp_path / "cache" / "rootfs").glob("*.part"))
