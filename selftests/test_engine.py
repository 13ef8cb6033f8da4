"""The container engine is found by asking it, and everything that can be wrong with it is said in one line."""

import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pvaffinity import engine
from pvaffinity.cli.node_image import node_image
from pvaffinity.errors import UserError

DOCKER = {
    "ServerVersion": "28.2.2",
    "CgroupVersion": "2",
    "MemTotal": 8 << 30,
    "KernelVersion": os.uname().release,
    "OSType": "linux",
    "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"],
}
PODMAN = {
    "version": {"Version": "5.4.0"},
    "host": {"cgroupVersion": "v2", "memTotal": 4 << 30, "security": {"rootless": True}, "serviceIsRemote": False},
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A PATH with nothing on it but what a test puts there."""
    monkeypatch.setenv("PATH", f"{tmp_path}")
    for name in ("DOCKER_HOST", "KIND_EXPERIMENTAL_PROVIDER"):
        monkeypatch.delenv(name, raising=False)

    def put(name, script):
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    return put


def answer(data):
    return f"printf '%s' '{json.dumps(data)}'"


def refuse(message):
    return f"echo '{message}' >&2; exit 1"


def test_docker_is_read(path):
    """Version, memory, control groups and rootlessness come from docker info."""
    path("docker", answer(DOCKER))
    found = engine.require()
    assert (found.name, found.version, found.cgroup, found.memory) == ("docker", "28.2.2", 2, 8 << 30)
    assert found.local
    assert found.rootless
    assert found.env["KIND_EXPERIMENTAL_PROVIDER"] == "docker"


def test_an_engine_in_a_virtual_machine_is_not_local(path):
    """Another kernel than ours means that our memory and limits say nothing about the engine."""
    path("docker", answer({**DOCKER, "KernelVersion": "6.10.14-linuxkit"}))
    assert not engine.require().local


def test_podman_is_taken_where_docker_does_not_answer(path):
    """A docker command without a server does not hide a podman that works."""
    path("docker", refuse("Cannot connect to the Docker daemon"))
    path("podman", answer(PODMAN))
    assert engine.require().name == "podman"


def test_the_choice_for_kind_is_honoured(path, monkeypatch):
    """KIND_EXPERIMENTAL_PROVIDER decides between two engines, as it does for kind."""
    path("docker", answer(DOCKER))
    path("podman", answer(PODMAN))
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "podman")
    assert engine.require().name == "podman"
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "lxc")
    with pytest.raises(UserError, match="'lxc'"):
        engine.require()


def test_no_engine(path):
    """Without any engine the error names both, and the way that needs none."""
    with pytest.raises(UserError, match="no container engine") as caught:
        engine.require()
    assert "--provider local" in caught.value.fix
    assert engine.detect() is None


@pytest.mark.parametrize("arguments", [["list"], ["build", "1.37"]])
@pytest.mark.parametrize("installed", [False, True])
def test_a_command_that_has_no_other_way_is_not_offered_one(path, arguments, installed):
    """Node images are an engine's: the advice names no option that the commands for them do not have."""
    if installed:
        path("docker", refuse("Cannot connect to the Docker daemon"))
    error = CliRunner().invoke(node_image, arguments).exception
    assert isinstance(error, UserError)
    assert "Docker" in error.fix + error.what
    assert "--provider" not in error.fix


@pytest.mark.parametrize(
    "message,fix",
    [
        ("permission denied while trying to connect to the Docker daemon socket", "usermod -aG docker"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "systemctl start docker"),
    ],
    ids=["permission", "stopped"],
)
def test_a_silent_engine(path, message, fix):
    """The engine's own words are shown, and what to do follows from them."""
    path("docker", refuse(message))
    with pytest.raises(UserError) as caught:
        engine.require()
    assert message in caught.value.what
    assert fix in caught.value.fix


def test_errors_inside_an_answer_are_errors(path):
    """Some clients answer with exit code 0 and say in the answer that there is no server."""
    path("docker", answer({"ServerErrors": ["no server"]}))
    with pytest.raises(UserError, match="no server"):
        engine.require()


def test_an_old_engine(path):
    """Docker 19.03 cannot do what kind asks of it."""
    path("docker", answer({**DOCKER, "ServerVersion": "19.03.15"}))
    with pytest.raises(UserError, match=r"19\.03\.15 is too old"):
        engine.require()


def test_a_command_that_takes_too_long_is_ended(path):
    """A hanging engine costs its time-out, not the session."""
    path("docker", f'if [ "$1" = info ]; then {answer(DOCKER)}; else exec /bin/sleep 60; fi')
    found = engine.require()
    started = time.monotonic()
    with pytest.raises(engine.EngineError, match="no answer within"):
        found.run("ps", timeout=0.3)
    assert time.monotonic() - started < 30


def test_what_the_engine_makes_is_waited_for_when_interrupted(path, tmp_path):
    """A patient command ends before the interruption goes on, so that what it made can be undone; others are ended."""
    slow = f"trap 'exit 1' TERM; /bin/sleep 1; kill -ALRM $PPID; /bin/sleep 1; echo made >{tmp_path}/$2"
    path("docker", f'if [ "$1" = info ]; then {answer(DOCKER)}; else {slow}; fi')
    found = engine.require()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for patient in (True, False):
            with pytest.raises(KeyboardInterrupt):
                found.run("commit", f"patient-{patient}", patient=patient)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert {file.name for file in tmp_path.glob("patient-*")} == {"patient-True"}


def test_a_dead_engine_is_told_within_seconds(tmp_path, monkeypatch):
    """A socket at which nobody answers is an error within seconds, by the real command where there is one."""
    docker = shutil.which("docker")
    if not docker:
        pytest.skip("there is no docker command")
    path = Path(f"/tmp/pvdead-{os.getpid()}.sock")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "docker")
    monkeypatch.setattr(engine, "_PATIENCE", 1.0)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        started = time.monotonic()
        try:
            with pytest.raises(UserError, match="docker does not answer: docker info: no answer within 1 s") as caught:
                engine.require()
        finally:
            path.unlink()
    assert time.monotonic() - started < 30
    assert caught.value.fix == f"restart the engine at DOCKER_HOST=unix://{path}, or use --provider local"


def test_images_carry_labels(path):
    """An image is looked up by name; one that is not there is None."""
    image = [{"Id": "sha256:1", "Config": {"Labels": {"a": "b"}}}]
    path("docker", f'case "$1$3" in info*) {answer(DOCKER)};; image*there) {answer(image)};; *) exit 1;; esac')
    found = engine.require()
    assert found.image("there").labels == {"a": "b"}
    assert found.image("elsewhere") is None


def test_an_engine_is_found_again(path, monkeypatch):
    """The variables that decided for an engine lead to it again, whatever the environment says by then."""
    path("docker", f'[ "$DOCKER_HOST" = unix:///a ] || exit 1; {answer(DOCKER)}')
    monkeypatch.setenv("DOCKER_HOST", "unix:///a")
    first = engine.require()
    monkeypatch.setenv("DOCKER_HOST", "unix:///b")
    assert engine.detect() is None
    again = engine.require(json.loads(json.dumps(dict(first.environment))))
    assert again == first
    assert again.env["DOCKER_HOST"] == "unix:///a"
