"""A kind cluster that cannot be created: what is told, what is kept, and what is not forgotten."""

import os
from pathlib import Path

import pytest

from pvaffinity.clusterconfig import load_config
from pvaffinity.engine import EngineError
from pvaffinity.errors import UserError
from pvaffinity.providers import kind as provider
from pvaffinity.providers import kind_logs, kind_nodes, kind_run, kind_setup
from pvaffinity.providers.base import ClusterSpec
from pvaffinity.providers.kind import KindProvider
from pvaffinity.providers.kind_setup import Kind, NodeImage
from pvaffinity.versions import load_versions
from selftests.engines import engine

SPEC = ClusterSpec("kind", load_versions().newest, load_config("gate-on"))
ENGINE = engine()
KIND = Kind(Path("/usr/bin/kind"), "0.33.0")
NO_DISK = "ERROR: failed to create cluster: write /var/lib: no space left on device"


@pytest.fixture
def told(tmp_path, monkeypatch):
    """An engine that answers, on which nothing is really done; what it was asked."""
    asked = []
    image = NodeImage("kindest/node:v1.37.0", ours=False, present=False)
    monkeypatch.setattr(provider, "require", lambda: ENGINE)
    monkeypatch.setattr(kind_setup, "find_kind", lambda _: KIND)
    monkeypatch.setattr(kind_setup, "choose_image", lambda *_: image)
    monkeypatch.setattr(kind_setup, "check_name", lambda *_: None)
    monkeypatch.setattr(kind_run, "wrap", lambda *_: None)
    monkeypatch.setattr(provider.kind_document, "document_for", lambda *_: "kind: Cluster")
    monkeypatch.setattr(KindProvider, "_delete", lambda *_: asked.append("delete"))
    monkeypatch.setattr(kind_logs, "failures_dir", lambda: tmp_path / "failed")
    monkeypatch.setattr(kind_logs, "export", lambda *_: asked.append("export"))
    return asked


def starting(says, code=1):
    """What a kind does that says something and ends."""

    def start(_self, _engine, _image, _name, directory, _progress):
        (directory / "kind.log").write_text(says)
        return code

    return start


def create(tmp_path):
    """Try it; returns the error, and the cluster's directory."""
    directory = tmp_path / "pv-1"
    directory.mkdir()
    with pytest.raises(UserError) as caught:
        KindProvider().create(SPEC, "pv-1", directory, os.getpid())
    return caught.value, directory


def test_a_failed_creation_leaves_nothing_but_its_logs(told, tmp_path, monkeypatch):
    """Kind's reason is told; nodes' logs are exported before the nodes are deleted, and the directory goes."""
    monkeypatch.setattr(KindProvider, "_start", starting("ERROR: no such image\n"))
    error, directory = create(tmp_path)
    assert error.what == "kind could not create the cluster: no such image"
    assert str(tmp_path / "failed" / "pv-1") in error.fix
    assert told == ["export", "delete"]
    assert not directory.exists()


def test_what_cannot_be_deleted_hides_no_reason_and_is_not_forgotten(told, tmp_path, monkeypatch):
    """Where the deletion fails too, both are told, and the directory stays, by which it can be deleted later."""

    def delete(*_):
        raise UserError("2 containers of pv-1 could not be deleted", "docker rm --force a b")

    monkeypatch.setattr(KindProvider, "_start", starting("ERROR: no such image\n"))
    monkeypatch.setattr(KindProvider, "_delete", delete)
    error, directory = create(tmp_path)
    assert error.what == "kind could not create the cluster: no such image"
    assert "2 containers of pv-1 could not be deleted\n  to fix: docker rm --force a b" in error.detail
    assert (directory / "kind.json").exists()


def test_a_full_disk_is_told_also_where_no_logs_can_be_kept(told, tmp_path, monkeypatch):
    """Where not even the directory for the logs can be made, the advice is still the right one."""
    (tmp_path / "failed").write_text("in the way, as a full disk is")
    monkeypatch.setattr(KindProvider, "_start", starting(NO_DISK))
    error, _ = create(tmp_path)
    assert error.fix == "free some disk: docker system df"
    monkeypatch.setattr(KindProvider, "_start", starting("ERROR: no such image\n"))
    assert kind_logs.failure(ENGINE, KIND, "pv-1", "x", "y").fix == "to try it by hand: /usr/bin/kind create cluster"


def test_logs_that_kind_cannot_export_hide_no_reason(told, tmp_path, monkeypatch):
    """Kind's own output is kept all the same."""

    def export(*_):
        raise EngineError("no nodes found")

    monkeypatch.setattr(kind_logs, "export", export)
    assert "see the logs in" in kind_logs.failure(ENGINE, KIND, "pv-1", "x", "y").fix
    assert (tmp_path / "failed" / "pv-1" / "kind.log").read_text() == "y"


def test_a_gate_that_is_not_as_configured_keeps_the_logs(told, tmp_path, monkeypatch):
    """A cluster whose component runs with another gate is deleted, and its logs tell what else sets it."""

    def gates(*_):
        raise UserError("kubelet runs with MutablePVNodeAffinity off", "see what else sets it")

    monkeypatch.setattr(KindProvider, "_start", starting("", code=0))
    monkeypatch.setattr(provider.Api, "from_kubeconfig", lambda _: None)
    monkeypatch.setattr(kind_nodes, "await_ready", lambda *_: "1.37.0")
    monkeypatch.setattr(kind_nodes, "gates", gates)
    error, directory = create(tmp_path)
    assert error.what == "kubelet runs with MutablePVNodeAffinity off"
    assert error.detail == f"the nodes' logs: {tmp_path / 'failed' / 'pv-1'}"
    assert told == ["export", "delete"]
    assert not directory.exists()


def test_room_is_reserved_after_the_image_is_there(told, monkeypatch):
    """A pull may take longer than a reservation lasts, and others would count on its room."""
    monkeypatch.setattr(kind_setup, "pull", lambda *_: told.append("pull"))
    monkeypatch.setattr(kind_setup.room, "reserve", lambda *_: told.append("reserve"))
    KindProvider().check(SPEC)
    assert told == ["pull", "reserve"]
