"""Hosts that are silent, cannot be found or refuse cost little time, once."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from pvaffinity.errors import UserError
from pvaffinity.local import reachable as reachable_module
from pvaffinity.local.bincache import Cache
from selftests.mirrored import Mirror, download


def test_a_silent_host_costs_at_most_five_seconds_once(
    mirror: Mirror, empty_cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that takes the connection and says nothing is given up in 5 s, and not tried again, nor by others."""
    assert reachable_module._DEADLINE < 5
    monkeypatch.setattr(reachable_module, "_DEADLINE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        monkeypatch.setenv("PVAFFINITY_DOWNLOADS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(UserError, match="cannot be reached"):
            download(empty_cache)
        silent.accept()[0].close()
        reachable_module._decided.clear()  # as if in another process
        with pytest.raises(UserError, match="cannot be reached"):
            download(empty_cache)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_name_lookup_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts whose names are looked up for ever cost one deadline together, since they are tried side by side."""
    end = threading.Event()
    monkeypatch.setattr(reachable_module, "_DEADLINE", 0.3)
    monkeypatch.setattr(reachable_module, "_decided", {})

    def hang(*_: object, **__: object) -> None:
        end.wait(60)
        raise OSError("too late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()

    answers = reachable_module.reachable({"http://a": "http://a/x", "http://b": "http://b/x"}, tmp_path / "memory")

    assert time.monotonic() - started < 30
    assert set(answers) == {"http://a", "http://b"}
    end.set()
    for thread in [t for t in threading.enumerate() if t.name.startswith("probe http")]:
        thread.join(5)


def test_a_refused_connection_is_noticed_at_once(
    empty_cache: Cache, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody listens, the user reads so without any time-out, with both ways out."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(reachable_module, "_DEADLINE", 120)
    started = time.monotonic()

    with pytest.raises(UserError, match="refused") as caught:
        download(empty_cache)

    assert time.monotonic() - started < 60
    assert "PVAFFINITY_DOWNLOADS" in caught.value.fix


def test_a_host_is_tried_again_when_the_proxy_changes(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of a host holds for the same proxy settings only."""
    elsewhere = {"http://203.0.113.7": "http://203.0.113.7/file"}
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert reachable_module.reachable(elsewhere, tmp_path / "memory")
    monkeypatch.setenv("HTTP_PROXY", mirror.url)

    assert not reachable_module.reachable(elsewhere, tmp_path / "memory")
