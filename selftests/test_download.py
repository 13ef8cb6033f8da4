"""Downloads of binaries, against a server of our own that breaks off, lies and stays silent."""

from __future__ import annotations

import hashlib
import os

import pytest

from pvaffinity.errors import UserError
from pvaffinity.local.binaries import COMPONENTS, items
from pvaffinity.local.bincache import Cache
from pvaffinity.local.download import bases
from pvaffinity.versions import load_versions
from selftests.mirrored import ETCD, RELEASE, Mirror, download, leftovers, script


def test_all_six_are_downloaded_and_usable(mirror: Mirror, empty_cache: Cache) -> None:
    """Good files end in the cache whole, executable and remembered; a second call asks the server nothing."""
    lines: list[str] = []

    got = download(empty_cache, lines)

    assert {name: got.path(name).read_bytes() for name in COMPONENTS[:-1]} == {
        name: script(name, RELEASE.version) for name in COMPONENTS[:-1]
    }
    assert got.path("etcd").read_bytes() == script("etcd", ETCD)
    assert all(os.access(p, os.X_OK) for p in got.paths.values())
    assert any("kubelet" in line and "(4 of 6)" in line and "%" in line for line in lines)
    assert not leftovers(empty_cache)
    mirror.asked.clear()
    assert download(empty_cache) == got
    assert not mirror.asked


def test_a_wrong_checksum_is_never_used(mirror: Mirror, empty_cache: Cache) -> None:
    """A file whose sha256 is not the published one is refused, named, and leaves nothing in the cache."""
    mirror.files[mirror.path_of("kubelet")] += b"x"

    with pytest.raises(UserError, match=r"kubelet.* has a wrong sha256"):
        download(empty_cache)

    kubelet = items(RELEASE)[3]
    assert empty_cache.find(kubelet).state == "missing"
    assert not empty_cache.find(kubelet).path.exists()
    assert not leftovers(empty_cache)


def test_a_cut_connection_is_resumed_where_it_ended(mirror: Mirror, empty_cache: Cache) -> None:
    """After a cut the rest is asked for by Range, and the whole is right."""
    path = mirror.path_of("kube-apiserver")
    mirror.cuts[path] = [150_000, 100_000]

    got = download(empty_cache)

    assert got.path("kube-apiserver").read_bytes() == mirror.files[path]
    assert [r for p, r in mirror.asked if p == path] == [None, "bytes=150000-", "bytes=250000-"]


def test_what_an_earlier_process_left_is_resumed(mirror: Mirror, empty_cache: Cache) -> None:
    """A download given up half-way is no result, and the next call goes on with it."""
    path = mirror.path_of("kube-apiserver")
    mirror.cuts[path] = [100_000, 0, 0, 0, 0, 0]
    with pytest.raises(UserError, match="broke off"):
        download(empty_cache)
    assert empty_cache.find(items(RELEASE)[0]).state == "missing"
    mirror.cuts.clear()
    mirror.asked.clear()

    got = download(empty_cache)

    assert [r for p, r in mirror.asked if p == path] == ["bytes=100000-"]
    assert got.path("kube-apiserver").read_bytes() == mirror.files[path]


@pytest.mark.parametrize("left", [b"garbage" * 1000, b"g" * 1_000_000], ids=["short", "longer than the file"])
def test_garbage_left_behind_is_started_over(mirror: Mirror, empty_cache: Cache, left: bytes) -> None:
    """A resumed download that turns out wrong is fetched from its beginning."""
    part = empty_cache.root / ".parts" / f"{items(RELEASE)[0].key}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)

    assert download(empty_cache).path("kube-apiserver").read_bytes() == mirror.files[mirror.path_of("kube-apiserver")]


def test_a_server_without_range_restarts(mirror: Mirror, empty_cache: Cache) -> None:
    """A server that ignores Range sends all again, and nothing is appended to the old."""
    mirror.ranges = False
    mirror.cuts[mirror.path_of("kubelet")] = [100_000]

    assert download(empty_cache).path("kubelet").read_bytes() == mirror.files[mirror.path_of("kubelet")]


def test_what_is_not_there_is_named(mirror: Mirror, empty_cache: Cache) -> None:
    """A 404 says which URL, and what else could be done."""
    with pytest.raises(UserError, match=r"/v1\.37\.9/bin/.*kube-apiserver.sha256 answered 404") as caught:
        download(empty_cache, release=load_versions().find("1.37.9"))
    assert "name a directory" in caught.value.fix


def test_a_download_of_another_version_is_refused(mirror: Mirror, empty_cache: Cache) -> None:
    """A mirror that serves another version under this version's name is caught by asking the binary."""
    path = mirror.path_of("kubelet")
    mirror.files[path] = script("kubelet", "1.2.3")
    mirror.files[f"{path}.sha256"] = f"{hashlib.sha256(mirror.files[path]).hexdigest()}  kubelet\n".encode()

    with pytest.raises(UserError, match=r"kubelet .*says it is version 1\.2\.3"):
        download(empty_cache)


def test_a_corrupt_binary_is_replaced(mirror: Mirror, empty_cache: Cache) -> None:
    """A binary that changed since it came is noticed, said, and fetched again; only it."""
    got = download(empty_cache)
    got.path("kubelet").write_bytes(b"\0" * len(script("kubelet", RELEASE.version)))
    mirror.asked.clear()
    lines: list[str] = []

    download(empty_cache, lines)

    assert any("kubelet" in line and "corrupt" in line for line in lines)
    assert {p.rsplit("/", 1)[1] for p, _ in mirror.asked} == {"kubelet", "kubelet.sha256"}
    assert got.path("kubelet").read_bytes() == script("kubelet", RELEASE.version)


@pytest.mark.parametrize("text", ["kubernets=http://x", "ftp://x", "http://", "kubernetes=x"])
def test_a_malformed_mirror_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A misspelt $PVAFFINITY_DOWNLOADS is named, not ignored."""
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", text)
    with pytest.raises(UserError, match="malformed"):
        bases()


def test_mirrors_can_be_given_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One product can have a mirror while the other keeps its official place; off means off."""
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", "etcd=https://mirror.example/etcd/")
    assert bases() == {"kubernetes": "https://dl.k8s.io/release", "etcd": "https://mirror.example/etcd"}
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", "off")
    assert bases() == {}
