"""Builds of binaries, with a stand-in for go; and one real build, if asked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pvaffinity.local import bincache
from pvaffinity.local.binaries import COMPONENTS, ensure
from pvaffinity.local.bincache import Cache
from pvaffinity.local.gobuild import kubernetes_go_mod
from pvaffinity.versions import load_versions
from selftests.faked_go import FakeGo

RELEASE = load_versions().newest


def test_all_six_are_built_once(fake_go: FakeGo) -> None:
    """What is missing is built, one module at a time; lines say how much is left; a second call builds none."""
    lines: list[str] = []

    got = ensure(RELEASE, progress=lines.append, every=0.0)

    assert fake_go.builds() == [*COMPONENTS[:-1], "v3"]
    assert (fake_go.root / "calls").read_text().count("\nbuild ") == 2
    assert got.source == "cache: built with go1.26.1"
    assert any("kubelet" in line and "(4 of 6)" in line for line in lines)
    assert any("1 of 3 packages compiled, about a minute left" in line for line in lines)
    assert ensure(RELEASE) == got
    assert len(fake_go.builds()) == 6
    assert not list((Cache().root / ".work").iterdir())


def test_etcd_is_shared(fake_go: FakeGo) -> None:
    """A second Kubernetes version builds its five binaries and takes the etcd that is there."""
    ensure(RELEASE)

    ensure(load_versions().find("1.36"))

    assert len(fake_go.builds()) == 11


def test_the_users_go_settings_do_no_harm(fake_go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOFLAGS, GOWORK and the like of the user are overridden, proxy and cache settings are kept."""
    for name, value in {
        "GOFLAGS": "-mod=vendor -race",
        "GOWORK": "/nowhere/go.work",
        "GOOS": "plan9",
        "CGO_ENABLED": "1",
        "GOPROXY": "https://proxy.example",
        "GOPRIVATE": "corp.example",
    }.items():
        monkeypatch.setenv(name, value)

    ensure(RELEASE)

    env = (fake_go.root / "env").read_text().splitlines()
    assert {"GOFLAGS=-mod=mod", "GOWORK=off", "GOOS=linux", "CGO_ENABLED=0", "GOTOOLCHAIN=auto"} <= set(env)
    assert {"GOPROXY=https://proxy.example", "GOPRIVATE=corp.example"} <= set(env)


def test_a_full_cache_needs_no_writing(fake_go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cached whole is used from a cache that cannot be written."""
    got = ensure(RELEASE)
    monkeypatch.setattr(bincache.FileLock, "acquire", lambda *_a, **_k: pytest.fail("the cache was locked"))
    monkeypatch.setattr(bincache, "_sync", lambda _: pytest.fail("the cache was written"))
    assert ensure(RELEASE) == got


THEIRS = """module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
\texample.com/a v1.2.3
\tk8s.io/api v0.0.0
)

replace (
\texample.com/b => example.com/c v1.0.0
\tk8s.io/api => ./staging/src/k8s.io/api
)
"""


def test_staging_modules_are_replaced_and_no_others() -> None:
    """Staging modules get the version that belongs to the release; other replacements are taken over."""
    assert kubernetes_go_mod(THEIRS, "1.34.4").splitlines() == [
        "module build",
        "go 1.24.0",
        "godebug default=go1.24",
        "require k8s.io/kubernetes v1.34.4",
        "replace k8s.io/api => k8s.io/api v0.34.4",
        "replace example.com/b => example.com/c v1.0.0",
    ]


@pytest.mark.slow
@pytest.mark.skipif("PVAFFINITY_TEST_BUILD" not in os.environ, reason="takes minutes: set PVAFFINITY_TEST_BUILD=1")
def test_a_real_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest release is built from published modules, and each binary says it is that version."""
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path))
    got = ensure(RELEASE, sources=("build",))
    for name in COMPONENTS[:-2]:
        assert RELEASE.version in subprocess.run([got.path(name), "--version"], capture_output=True, text=True).stdout
