"""Binaries that are there already: in a directory the user names, or in the cache; and the commands that show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pvaffinity.cli import main
from pvaffinity.errors import UserError
from pvaffinity.local.binaries import COMPONENTS, ensure, items
from pvaffinity.local.bincache import Cache
from pvaffinity.local.probe import agrees
from pvaffinity.local.reporter import Reporter
from pvaffinity.versions import load_versions

RELEASE = load_versions().newest
ETCD = load_versions().etcd


def fill(directory: Path, version: str = RELEASE.version, etcd: str = ETCD) -> Path:
    directory.mkdir(parents=True)
    for name in COMPONENTS:
        told = etcd if name == "etcd" else f"v{version}"
        (directory / name).write_text(f"#!/bin/sh\necho 'Version: {told}'\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache that holds the newest release."""
    monkeypatch.setenv("PVAFFINITY_CACHE", str(tmp_path / "cache"))
    cache = Cache()
    source = fill(tmp_path / "source")
    for item in items(RELEASE):
        with cache.making(item, Reporter()) as directory:
            made = directory / item.name
            made.write_bytes((source / item.name).read_bytes())
            made.chmod(0o755)
            cache.publish(item, made, "build of a test")
    return cache


def test_a_named_directory_is_used_as_it_is(tmp_path: Path) -> None:
    """All six come from the directory the user names."""
    named = fill(tmp_path / "named")
    got = ensure(RELEASE, named=named)
    assert got.paths == {name: named / name for name in COMPONENTS}
    assert (got.source, got.kubectl) == ("named", named / "kubectl")


def test_a_named_directory_may_hold_several_versions(tmp_path: Path) -> None:
    """With one subdirectory a version, each release finds its own, and etcd may lie above them."""
    fill(tmp_path / "1.36.3", "1.36.3")
    (tmp_path / "1.36.3/etcd").rename(tmp_path / "etcd")
    got = ensure(load_versions().find("1.36.3"), named=tmp_path)
    assert got.path("kubelet") == tmp_path / "1.36.3/kubelet"
    assert got.path("etcd") == tmp_path / "etcd"


def test_what_a_named_directory_lacks_is_named(tmp_path: Path) -> None:
    """Nothing is fetched in place of a file that a named directory lacks."""
    named = fill(tmp_path / "named")
    (named / "kubelet").unlink()
    (named / "etcd").unlink()
    with pytest.raises(UserError, match="lacks kubelet, etcd"):
        ensure(RELEASE, named=named)


def test_another_version_in_a_named_directory_is_refused(tmp_path: Path) -> None:
    """A binary that is not the wanted version stops the start, and the user reads how to want that version."""
    named = fill(tmp_path / "named", "1.35.4")
    with pytest.raises(UserError, match=r"is version 1\.35\.4, but .* is wanted") as caught:
        ensure(RELEASE, named=named)
    assert "--kubernetes-version 1.35.4" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("#!/bin/sh\necho cannot open libc >&2; exit 1\n", "cannot open libc"),
        ("\x7fELF nonsense", "Exec format error"),
        ("#!/bin/sh\necho hello\n", "hello"),
    ],
)
def test_a_named_binary_that_does_not_run_is_refused(tmp_path: Path, content: str, told: str) -> None:
    """A file that is no binary for this machine is found before a cluster is started, with the reason."""
    named = fill(tmp_path / "named")
    (named / "kubelet").write_text(content)
    with pytest.raises(UserError, match=f"kubelet does not run: .*{told}"):
        ensure(RELEASE, named=named)


def test_an_etcd_too_old_is_refused(tmp_path: Path) -> None:
    """Any etcd that Kubernetes accepts will do, an older one will not."""
    assert ensure(RELEASE, named=fill(tmp_path / "good", etcd="3.5.24"))
    with pytest.raises(UserError, match=r"3\.5\.9, too old"):
        ensure(RELEASE, named=fill(tmp_path / "old", etcd="3.5.9"))


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("1.37.2", "1.37.2", True),
        ("1.37.2+k3s1", "1.37.2", True),
        ("1.37.20", "1.37.2", False),
        ("1.37.2-eks-1", "1.37.2", False),
        ("1.38.0-alpha.3.12+abc-dirty", "1.38.0-beta.0", True),
        ("1.38.0", "1.38.0-beta.0", False),
        ("1.39.0-alpha.0", "1.38.0-beta.0", False),
    ],
)
def test_which_versions_agree(found: str, wanted: str, same: bool) -> None:
    """Build metadata does not count; for a pre-release any pre-release of the minor will do."""
    assert agrees(found, wanted) is same


def test_a_touched_file_is_read_once(cache: Cache) -> None:
    """A new time stamp alone is no corruption; it is checked once and remembered."""
    item = items(RELEASE)[0]
    path = cache.find(item).path
    os.utime(path, (1, 1))
    assert cache.find(item).state == "ok"
    path.write_bytes(path.read_bytes().replace(b"Version", b"version"))
    os.utime(path, (1, 1))
    assert cache.find(item).state == "ok"  # same size and time: believed ...
    assert cache.find(item, verify=True).state == "corrupt"  # ... unless all is read


@pytest.mark.parametrize("manifest", ["", "{", "[]", '{"kubelet": {}}', '{"kubelet": 3}'])
def test_a_broken_manifest_means_missing(cache: Cache, manifest: str) -> None:
    """Files of which nothing is known do not count."""
    item = items(RELEASE)[3]
    (cache.root / item.entry / "manifest.json").write_text(manifest)
    assert cache.find(item).state == "missing"


def test_list_shows_what_is_there(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    """The list names every known release, what is cached of it, and from where."""
    main_ok("binaries", "list", "--verify")
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == [RELEASE.version, "ok"] and "build" in line for line in lines)
    assert any("1.34.4" in line and "not in the cache" in line for line in lines)
    assert any("etcd" in line and "ok" in line for line in lines)


def test_list_names_what_is_corrupt(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    """A corrupt file is named with what is wrong with it, and the exit code says so."""
    cache.find(items(RELEASE)[3]).path.write_text("x")
    with pytest.raises(SystemExit, match="2"):
        main(["binaries", "list"])
    out = capsys.readouterr()
    assert "1 of 5 corrupt" in out.out
    assert f"kubelet {RELEASE.version}: 1 bytes instead of" in out.err


def test_path_prints_a_path_and_fetches_nothing(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    """What is cached has a path to use in scripts; what is not is an error with the command that gets it."""
    main_ok("binaries", "path")
    assert capsys.readouterr().out == f"{cache.root / items(RELEASE)[0].entry}\n"
    main_ok("binaries", "path", RELEASE.minor, "etcd")
    assert capsys.readouterr().out == f"{cache.root / items(RELEASE)[5].entry / 'etcd'}\n"
    with pytest.raises(SystemExit, match="2"):
        main(["binaries", "path", "1.34"])
    assert "pvaffinity binaries fetch 1.34" in capsys.readouterr().err


def main_ok(*arguments: str) -> None:
    """Run the command line, which may end with exit code 0."""
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code  # noqa: PT017


def test_what_filled_the_cache_is_told(cache: Cache, tmp_path: Path) -> None:
    """A report says where the binaries came from, also where each came from elsewhere; old entries name no Go."""
    assert ensure(RELEASE).source == "cache: built with Go"
    origins = {
        "etcd": "download from https://user:secret@mirror.example:8443/etcd.tar.gz",
        "kubelet": "build of k8s.io/kubernetes/cmd/kubelet with go1.26.4",
        "kubectl": "something else",
    }
    for item in items(RELEASE):
        with cache.making(item, Reporter()) as directory:
            made = directory / item.name
            made.write_bytes((tmp_path / "source" / item.name).read_bytes())
            cache.publish(item, made, origins.get(item.name, origins["kubelet"]))
    assert ensure(RELEASE).source == "cache: built with go1.26.4, downloaded from mirror.example"
