"""What a kind cluster needs is found or refused beforehand."""

import dataclasses
import json
import os
import subprocess

import pytest

from pvaffinity import inotify, room
from pvaffinity.engine import EngineError
from pvaffinity.errors import RoomError, UserError
from pvaffinity.local.owner import Owner
from pvaffinity.nodeimage.recipe import load_recipe
from pvaffinity.providers import kind_setup
from pvaffinity.providers.kind_setup import NodeImage, choose_image, find_kind, official_image
from pvaffinity.versions import load_versions
from selftests.engines import OFFICIAL, OURS, WithImages, engine

pytestmark = pytest.mark.usefixtures("own_run")


@pytest.fixture
def kinds(tmp_path, monkeypatch):
    """Puts kinds of some version onto an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KIND_PATH", raising=False)

    def put(says, directory="bin"):
        file = tmp_path / directory / "kind"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho '{says}'\n")
        file.chmod(0o755)
        return file

    return put


def test_kind_comes_from_the_path(kinds):
    """A kind on PATH is used, by its absolute path."""
    path = kinds("kind v0.33.0 go1.26.8 linux/amd64")
    assert find_kind() == kind_setup.Kind(path, "0.33.0")


def test_a_named_kind_goes_before_the_path(kinds, monkeypatch):
    """What was named, by option or KIND_PATH, is used even if PATH has another."""
    kinds("kind v0.33.0")
    other = kinds("kind v0.31.0", "other")
    assert find_kind(other).version == "0.31.0"
    monkeypatch.setenv("KIND_PATH", str(other))
    assert find_kind().version == "0.31.0"


@pytest.mark.parametrize(
    "says,message",
    [("kind v0.17.0 go1.19.2 linux/amd64", "is kind v0.17.0, older than 0.30"), ("hello", "is not kind")],
    ids=["old", "not-kind"],
)
def test_a_wrong_kind_is_refused(kinds, says, message):
    """A kind that is too old, or none at all, is refused with one line."""
    kinds(says)
    with pytest.raises(UserError, match=message) as caught:
        find_kind()
    assert "0.30" in caught.value.fix


def test_without_kind_nothing_is_downloaded(kinds, tmp_path):
    """A missing kind is an error; pytest-kind would fetch kind 0.17 in silence."""
    with pytest.raises(UserError, match="not on PATH"):
        find_kind()
    with pytest.raises(UserError, match="No such file"):
        find_kind(tmp_path / "nowhere")


def test_official_images_are_pinned():
    """Every release of versions.toml has an image by digest; its minor version is the release's."""
    for release in load_versions().releases:
        name, _, digest = official_image(release).partition("@")
        assert name.startswith(f"kindest/node:v{release.minor}."), release
        assert digest.startswith("sha256:")
        assert len(digest) == 71


def test_a_patch_release_is_taken_at_its_word():
    """A version named in full gets exactly that image, with a digest only if it is the published one."""
    find = load_versions().find
    assert official_image(find("1.37.1")) == "kindest/node:v1.37.1"
    assert official_image(find("1.37.0")) == official_image(find("1.37"))


def test_an_image_that_is_there_goes_first():
    """Named, then official and present, then ours and present, then official to be pulled."""
    release = load_versions().find("1.37")
    official, ours = official_image(release), load_recipe().tag(release.version)
    assert choose_image(engine(official, ours), release) == NodeImage(official, ours=False, present=True)
    assert choose_image(engine(ours), release) == NodeImage(ours, ours=True, present=True)
    assert choose_image(engine(), release) == NodeImage(official, ours=False, present=False)
    assert choose_image(engine(official), release, "mine:1") == NodeImage("mine:1", ours=False, present=False)
    assert choose_image(engine("pvaffinity.dev/x"), release, "pvaffinity.dev/x").ours


def test_a_machine_that_cannot_is_refused():
    """Control groups v1 with an official image of 1.35 or later, and too little memory, are told beforehand."""
    find = load_versions().find
    with pytest.raises(UserError, match="control groups v1") as caught:
        kind_setup.check_image(engine(cgroup=1), OFFICIAL, find("1.35"))
    assert "pvaffinity node-image build 1.35" in caught.value.fix
    kind_setup.check_image(engine(cgroup=1), OFFICIAL, find("1.34"))
    kind_setup.check_image(engine(cgroup=1), OURS, find("1.37"))
    with pytest.raises(UserError, match="1024 MB of memory are free"):
        kind_setup.check_machine(engine(memory=1 << 30), 6)


@pytest.mark.parametrize("script,message", [("exec sleep 60", "within"), ("printf '\\377\\376'", "is not kind")])
def test_a_kind_that_hangs_or_stammers_is_no_stack_trace(kinds, monkeypatch, script, message):
    """What takes too long, or writes what is no text, is refused like any other program that is not kind."""
    program = kinds("")
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    run = kind_setup.subprocess.run
    monkeypatch.setattr(kind_setup.subprocess, "run", lambda *a, **k: run(*a, **{**k, "timeout": 1}))
    with pytest.raises(UserError, match=message):
        find_kind()


def test_a_kind_that_may_not_be_run_is_told(kinds):
    """A file without the right to execute it says so."""
    program = kinds("kind v0.33.0")
    program.chmod(0o644)
    with pytest.raises(UserError, match=r"\(from --kind-bin\) does not run: Permission denied"):
        find_kind(program)


def test_an_image_of_another_kubernetes_is_refused():
    """A node image that tells another minor version than was asked for, by label or name, is refused beforehand."""
    newest = load_versions().newest
    other = choose_image(engine(), newest, "kindest/node:v1.36.4@sha256:0")
    assert other.version == "1.36.4"
    with pytest.raises(UserError, match=r"kindest/node:v1\.36\.4@sha256:0 is Kubernetes 1\.36\.4, not 1\.37") as caught:
        kind_setup.check_image(engine(), other, newest)
    assert "--kubernetes-version 1.36" in caught.value.fix
    kind_setup.check_image(engine(), choose_image(engine(), newest, "mine:latest"), newest)


def test_memory_that_others_have_reserved_is_not_free(monkeypatch, tmp_path):
    """What another process is about to take is not offered twice; it is free again when that process has ended."""
    monkeypatch.setattr(room, "run_dir", lambda: tmp_path)
    need = kind_setup.MEMORY_BASE + kind_setup.MEMORY_NODE
    machine = engine(memory=2 * need - 1)
    kind_setup.check_machine(machine, 1)
    kind_setup.check_machine(machine, 1)  # one's own reservation is replaced
    other = subprocess.Popen(["sleep", "60"])
    mine = tmp_path / "reservations" / f"{os.getpid()}.json"
    by = Owner.of(other.pid)
    text = json.loads(mine.read_text()) | {"pid": by.pid, "start": by.start}
    mine.with_name(f"{other.pid}.json").write_text(json.dumps(text))
    with pytest.raises(RoomError, match="beside the clusters that are being made") as caught:
        kind_setup.check_machine(machine, 1)
    assert "wait until the other cluster is up" in caught.value.fix
    other.kill()
    other.wait()
    kind_setup.check_machine(machine, 1)
    room.settle()
    assert not list((tmp_path / "reservations").glob("*.json"))


def test_inotify_limits_are_tried(monkeypatch):
    """More nodes than the limit allows are refused with the sysctl that helps."""
    monkeypatch.setattr(inotify, "free_instances", lambda need: min(need, 60))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    here = dataclasses.replace(engine(), local=True)
    kind_setup.check_machine(here, 2)
    with pytest.raises(UserError, match="60 are free; 6 nodes need about 106") as caught:
        kind_setup.check_machine(here, 6)
    assert "sysctl -w fs.inotify.max_user_instances" in caught.value.fix


def test_an_image_that_cannot_be_pulled_shows_the_ways_out():
    """The engine's reason is shown, with the three ways that need no registry."""

    class Offline(WithImages):
        def run(self, *arguments, **_):
            raise EngineError(f"{arguments[0]}: no such host")

    offline = Offline("docker", "docker", "28.0.0", 2, 1 << 30, local=True, rootless=False)
    missing = NodeImage("kindest/node:v1.37.0", ours=False, present=False)
    with pytest.raises(UserError, match="cannot be pulled: pull: no such host") as caught:
        kind_setup.pull(offline, missing, load_versions().newest, lambda _: None)
    for way in ("pvaffinity node-image build 1.37", "--kind-image", "--provider local"):
        assert way in caught.value.fix
    assert kind_setup.can_be_pulled(offline, missing) == "manifest: no such host"
