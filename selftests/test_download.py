"""Downloads of binaries, against a server of our own that breaks off, lies and stays silent."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvaffinity.errors import UserError
from pvaffinity.local import reachable as reachable_module
from pvaffinity.local.binaries import COMPONENTS, Binaries, ensure, items
from pvaffinity.local.bincache import Cache, host
from pvaffinity.local.download import bases
from pvaffinity.versions import Release, load_versions
from selftests.serving import serving

RELEASE = load_versions().newest
ETCD = load_versions().etcd
PADDING = "#" * 400_000


def script(name: str, version: str) -> bytes:
    """A binary that tells its version, and is long enough to be cut."""
    text = {"kubectl": f"Client Version: v{version}", "etcd": f"etcd Version: {version}"}.get(
        name, f"Kubernetes v{version}"
    )
    return f"#!/bin/sh\necho '{text}'\nexit 0\n{PADDING}".encode()


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``; ``cuts`` says after how many bytes of a path's next answers to hang up."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cuts: dict[str, list[int]] = {}
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []
        system, machine = host()
        for name in COMPONENTS[:-1]:
            path = f"/v{RELEASE.version}/bin/{system}/{machine}/{name}"
            self.files[path] = script(name, RELEASE.version)
            self.files[f"{path}.sha256"] = hashlib.sha256(self.files[path]).hexdigest().encode()
        name = f"etcd-v{ETCD}-{system}-{machine}"
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for member in ("etcdctl", "etcd"):
                data = script(member, ETCD)
                info = tarfile.TarInfo(f"{name}/{member}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        digest = hashlib.sha256(archive.getvalue()).hexdigest()
        self.files[f"/v{ETCD}/{name}.tar.gz"] = archive.getvalue()
        self.files[f"/v{ETCD}/SHA256SUMS"] = f"{'0' * 64}  other.tar.gz\n{digest}  {name}.tar.gz\n".encode()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def path_of(self, name: str) -> str:
        """Path of a Kubernetes binary."""
        return f"/v{RELEASE.version}/bin/{'/'.join(host())}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET, with Range if the server has ``ranges``."""

    server: Server

    def do_GET(self) -> None:
        """Answer, or break off."""
        asked_range = self.headers.get("Range")
        self.server.asked.append((self.path, asked_range))
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        start = int(asked_range[6:-1]) if asked_range and self.server.ranges else 0
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        cuts = self.server.cuts.get(self.path) or [len(data)]
        self.wfile.write(data[start : start + cuts[0]])
        if cuts[0] < len(data):
            cuts.pop(0)
            self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(reachable_module, "_decided", {})
    with serving(Server()) as server:
        monkeypatch.setenv("PVAFFINITY_DOWNLOADS", server.url)
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "binaries")


def download(cache: Cache, lines: list[str] | None = None, release: Release = RELEASE) -> Binaries:
    lines = [] if lines is None else lines
    return ensure(release, cache=cache, progress=lines.append, every=0.0, sources=("download",))


def leftovers(cache: Cache) -> list[str]:
    return [str(p) for d in (".work", ".parts") for p in (cache.root / d).rglob("*") if p.is_file()]


def test_all_six_are_downloaded_and_usable(server: Server, cache: Cache) -> None:
    """Good files end in the cache whole, executable and remembered; a second call asks the server nothing."""
    lines: list[str] = []

    got = download(cache, lines)

    assert {name: got.path(name).read_bytes() for name in COMPONENTS[:-1]} == {
        name: script(name, RELEASE.version) for name in COMPONENTS[:-1]
    }
    assert got.path("etcd").read_bytes() == script("etcd", ETCD)
    assert all(os.access(p, os.X_OK) for p in got.paths.values())
    assert any("kubelet" in line and "(4 of 6)" in line and "%" in line for line in lines)
    assert not leftovers(cache)
    server.asked.clear()
    assert download(cache) == got
    assert not server.asked


def test_a_wrong_checksum_is_never_used(server: Server, cache: Cache) -> None:
    """A file whose sha256 is not the published one is refused, named, and leaves nothing in the cache."""
    server.files[server.path_of("kubelet")] += b"x"

    with pytest.raises(UserError, match=r"kubelet.* has a wrong sha256"):
        download(cache)

    kubelet = items(RELEASE)[3]
    assert cache.find(kubelet).state == "missing"
    assert not cache.find(kubelet).path.exists()
    assert not leftovers(cache)


def test_a_cut_connection_is_resumed_where_it_ended(server: Server, cache: Cache) -> None:
    """After a cut the rest is asked for by Range, and the whole is right."""
    path = server.path_of("kube-apiserver")
    server.cuts[path] = [150_000, 100_000]

    got = download(cache)

    assert got.path("kube-apiserver").read_bytes() == server.files[path]
    assert [r for p, r in server.asked if p == path] == [None, "bytes=150000-", "bytes=250000-"]


def test_what_an_earlier_process_left_is_resumed(server: Server, cache: Cache) -> None:
    """A download given up half-way is no result, and the next call goes on with it."""
    path = server.path_of("kube-apiserver")
    server.cuts[path] = [100_000, 0, 0, 0, 0, 0]
    with pytest.raises(UserError, match="broke off"):
        download(cache)
    assert cache.find(items(RELEASE)[0]).state == "missing"
    server.cuts.clear()
    server.asked.clear()

    got = download(cache)

    assert [r for p, r in server.asked if p == path] == ["bytes=100000-"]
    assert got.path("kube-apiserver").read_bytes() == server.files[path]


@pytest.mark.parametrize("left", [b"garbage" * 1000, b"g" * 1_000_000], ids=["short", "longer than the file"])
def test_garbage_left_behind_is_started_over(server: Server, cache: Cache, left: bytes) -> None:
    """A resumed download that turns out wrong is fetched from its beginning."""
    part = cache.root / ".parts" / f"{items(RELEASE)[0].key}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(left)

    assert download(cache).path("kube-apiserver").read_bytes() == server.files[server.path_of("kube-apiserver")]


def test_a_server_without_range_restarts(server: Server, cache: Cache) -> None:
    """A server that ignores Range sends all again, and nothing is appended to the old."""
    server.ranges = False
    server.cuts[server.path_of("kubelet")] = [100_000]

    assert download(cache).path("kubelet").read_bytes() == server.files[server.path_of("kubelet")]


def test_what_is_not_there_is_named(server: Server, cache: Cache) -> None:
    """A 404 says which URL, and what else could be done."""
    with pytest.raises(UserError, match=r"/v1\.37\.9/bin/.*kube-apiserver.sha256 answered 404") as caught:
        download(cache, release=load_versions().find("1.37.9"))
    assert "name a directory" in caught.value.fix


def test_a_download_of_another_version_is_refused(server: Server, cache: Cache) -> None:
    """A mirror that serves another version under this version's name is caught by asking the binary."""
    path = server.path_of("kubelet")
    server.files[path] = script("kubelet", "1.2.3")
    server.files[f"{path}.sha256"] = f"{hashlib.sha256(server.files[path]).hexdigest()}  kubelet\n".encode()

    with pytest.raises(UserError, match=r"kubelet .*says it is version 1\.2\.3"):
        download(cache)


def test_a_corrupt_binary_is_replaced(server: Server, cache: Cache) -> None:
    """A binary that changed since it came is noticed, said, and fetched again; only it."""
    got = download(cache)
    got.path("kubelet").write_bytes(b"\0" * len(script("kubelet", RELEASE.version)))
    server.asked.clear()
    lines: list[str] = []

    download(cache, lines)

    assert any("kubelet" in line and "corrupt" in line for line in lines)
    assert {p.rsplit("/", 1)[1] for p, _ in server.asked} == {"kubelet", "kubelet.sha256"}
    assert got.path("kubelet").read_bytes() == script("kubelet", RELEASE.version)


def test_a_silent_host_costs_at_most_five_seconds_once(
    server: Server, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that takes the connection and says nothing is given up in 5 s, and not tried again, nor by others."""
    assert reachable_module._DEADLINE < 5
    monkeypatch.setattr(reachable_module, "_DEADLINE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        monkeypatch.setenv("PVAFFINITY_DOWNLOADS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(UserError, match="cannot be reached"):
            download(cache)
        silent.accept()[0].close()
        reachable_module._decided.clear()  # as if in another process
        with pytest.raises(UserError, match="cannot be reached"):
            download(cache)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_name_lookup_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts whose names are looked up for ever cost one deadline together, since they are tried side by side."""
    end = threading.Event()
    monkeypatch.setattr(reachable_module, "_DEADLINE", 0.3)
    monkeypatch.setattr(reachable_module, "_decided", {})

    def hang(*_: object, **__: object) -> None:
        end.wait(60)
        raise reachable_module.httpx.ConnectTimeout("too late")

    monkeypatch.setattr(reachable_module.httpx, "stream", hang)
    started = time.monotonic()

    answers = reachable_module.reachable({"http://a": "http://a/x", "http://b": "http://b/x"}, tmp_path / "memory")

    assert time.monotonic() - started < 30
    assert set(answers) == {"http://a", "http://b"}
    end.set()
    for thread in [t for t in threading.enumerate() if t.name.startswith("probe http")]:
        thread.join(5)


def test_a_refused_connection_is_noticed_at_once(cache: Cache, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody listens, the user reads so without any time-out, with both ways out."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    monkeypatch.setenv("PVAFFINITY_DOWNLOADS", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(reachable_module, "_DEADLINE", 120)
    started = time.monotonic()

    with pytest.raises(UserError, match="refused") as caught:
        download(cache)

    assert time.monotonic() - started < 60
    assert "PVAFFINITY_DOWNLOADS" in caught.value.fix


def test_a_host_is_tried_again_when_the_proxy_changes(
    cache: Cache, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of a host holds for the same proxy settings only."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="cannot be reached"):
        download(cache)
    monkeypatch.delenv("HTTP_PROXY")

    assert download(cache).kubectl.exists()


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
