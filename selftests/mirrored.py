"""A server of release files of our own, which breaks off, lies and stays silent, and downloads from it."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile

from pvaffinity.local.binaries import COMPONENTS, Binaries, ensure
from pvaffinity.local.bincache import Cache, host
from pvaffinity.versions import Release, load_versions
from selftests.serving import Quiet

RELEASE = load_versions().newest
ETCD = load_versions().etcd
PADDING = "#" * 400_000


def script(name: str, version: str) -> bytes:
    """A binary that tells its version, and is long enough to be cut."""
    text = {"kubectl": f"Client Version: v{version}", "etcd": f"etcd Version: {version}"}.get(
        name, f"Kubernetes v{version}"
    )
    return f"#!/bin/sh\necho '{text}'\nexit 0\n{PADDING}".encode()


class Mirror(http.server.ThreadingHTTPServer):
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


class Handler(Quiet, http.server.BaseHTTPRequestHandler):
    """Answers GET, with Range if the server has ``ranges``."""

    server: Mirror

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


def download(cache: Cache, lines: list[str] | None = None, release: Release = RELEASE) -> Binaries:
    """Download a release into a cache; what is told of it goes to ``lines``."""
    lines = [] if lines is None else lines
    return ensure(release, cache=cache, progress=lines.append, every=0.0, sources=("download",))


def leftovers(cache: Cache) -> list[str]:
    """Files in a cache's directories for work that is not done."""
    return [str(p) for d in (".work", ".parts") for p in (cache.root / d).rglob("*") if p.is_file()]
