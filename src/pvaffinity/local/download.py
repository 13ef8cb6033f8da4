"""Official downloads: dl.k8s.io for Kubernetes, the release page for etcd; verified, resumed, never half a file.

``$PVAFFINITY_DOWNLOADS`` names mirrors: one URL for both, or ``kubernetes=URL etcd=URL``, or ``off``. Below them::

    v1.37.2/bin/linux/amd64/kubelet               kubelet.sha256
    v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz       SHA256SUMS
"""

from __future__ import annotations

__all__ = ["Downloads", "bases"]

import os
import re
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import tenacity

from pvaffinity import web
from pvaffinity.errors import UserError
from pvaffinity.local.bincache import Item, disk_full, host, sha256_of, writing
from pvaffinity.local.reachable import reachable
from pvaffinity.local.reporter import Reporter
from pvaffinity.local.sources import SourceError

_OFFICIAL = {
    "kubernetes": "https://dl.k8s.io/release",
    "etcd": "https://github.com/etcd-io/etcd/releases/download",
}
_TIMEOUT = httpx.Timeout(20.0, connect=5.0)  # 20 s without a byte: the connection is dead, resume on a new one
_FIX = "make {} reachable and say pvaffinity binaries fetch --retry, or set PVAFFINITY_DOWNLOADS to a mirror"


def bases() -> dict[str, str]:
    """Base URL of each product; empty if downloads are switched off.

    Raises:
        UserError: ``$PVAFFINITY_DOWNLOADS`` is malformed.
    """
    text = os.environ.get("PVAFFINITY_DOWNLOADS", "").strip()
    if text == "off":
        return {}
    named = dict(part.split("=", 1) for part in text.split() if re.match(r"[a-z]+=", part))
    if text and not named:
        named = dict.fromkeys(_OFFICIAL, text)
    wrong = [k for k in named if k not in _OFFICIAL] + [
        u for u in named.values() if not re.fullmatch(r"https?://[^\s/]+\S*", u)
    ]
    if wrong:
        raise UserError(
            f"PVAFFINITY_DOWNLOADS is malformed at {wrong[0]!r}",
            "set it to one URL, to 'kubernetes=URL etcd=URL', or to off",
        )
    return {product: url.rstrip("/") for product, url in {**_OFFICIAL, **named}.items()}


class Downloads:
    """The source ``download`` (see :class:`pvaffinity.local.sources.Source`).

    Args:
        root: the cache's; unfinished downloads and what is known of unreachable hosts are kept there.
        wanted: what will be asked for: the hosts for it are tried side by side, once.
        insist: try hosts that were unreachable a moment ago.
    """

    def __init__(self, root: Path, wanted: Sequence[Item], *, insist: bool = False) -> None:
        self._root = root
        self._bases = bases()
        self._told: set[str] = set()
        probes = {self._bases[i.product]: self._urls(i)[1] for i in wanted if self._bases}
        self._unreachable = reachable(probes, root / ".unreachable.json", insist=insist)

    def get(self, item: Item, directory: Path, reporter: Reporter) -> tuple[Path, str]:
        """Download, verify and unpack the item into ``directory``."""
        if not self._bases:
            raise SourceError("downloads are switched off", "unset PVAFFINITY_DOWNLOADS", news=False)
        base = self._bases[item.product]
        site = urlsplit(base).netloc
        fix = _FIX.format(site)
        if base in self._unreachable:
            why = self._unreachable[base]
            raise SourceError(f"{site} cannot be reached ({why})", fix, news=self._news(base))
        url, sums = self._urls(item)
        try:
            with web.client(_TIMEOUT) as client:
                digest = _digest(client, sums, url.rsplit("/", 1)[1])
                part = self._part(item)
                reporter.say(f"downloading from {site}")
                fetch(client, url, digest, part, reporter)
        except httpx.HTTPStatusError as error:
            code = error.response.status_code
            raise SourceError(f"{error.request.url} answered {code}", fix) from error
        except httpx.HTTPError as error:
            raise SourceError(f"the download from {site} broke off: {error or type(error).__name__}", fix) from error
        with writing(directory):
            target = directory / item.name
            file = _unpack(part, target) if item.product == "etcd" else part.replace(target)
        return file, f"download from {url}"

    def _news(self, base: str) -> bool:
        new = base not in self._told
        self._told.add(base)
        return new

    def _part(self, item: Item) -> Path:
        path = self._root / ".parts" / f"{item.key}.part"
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        return path

    def _urls(self, item: Item) -> tuple[str, str]:
        base, (system, machine) = self._bases[item.product], host()
        if item.product == "etcd":
            directory = f"{base}/v{item.version}"
            return f"{directory}/etcd-v{item.version}-{system}-{machine}.tar.gz", f"{directory}/SHA256SUMS"
        url = f"{base}/v{item.version}/bin/{system}/{machine}/{item.name}"
        return url, f"{url}.sha256"


def _patiently(part: Path | None = None) -> tenacity.Retrying:
    """Try again until four attempts in a row brought nothing more into ``part``."""
    tried = {"size": 0, "in vain": 0}

    def stop(state: tenacity.RetryCallState) -> bool:
        size = part.stat().st_size if part and part.exists() else 0
        tried.update({"in vain": 0} if size > tried["size"] else {"in vain": tried["in vain"] + 1}, size=size)
        return tried["in vain"] >= 4

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(_passing),
        stop=stop,
        wait=tenacity.wait_exponential(0.2, max=3),
        reraise=True,
    )


def _passing(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    return isinstance(error, httpx.TransportError)


def _digest(client: httpx.Client, url: str, name: str) -> str:
    """The sha256 that a ``.sha256`` file, or the line for ``name`` in a ``SHA256SUMS`` file, gives."""
    for attempt in _patiently():
        with attempt:
            text = client.get(url).raise_for_status().text
    match = re.search(rf"^([0-9a-fA-F]{{64}})\s+\*?{re.escape(name)}$|^\s*([0-9a-fA-F]{{64}})\s*$", text, re.MULTILINE)
    if not match:
        raise SourceError(f"{url} holds no sha256 of {name}")
    return (match[1] or match[2]).lower()


def fetch(client: httpx.Client, url: str, digest: str, part: Path, reporter: Reporter) -> None:
    """Fetch ``url`` into ``part``, going on where an earlier attempt, of any process, ended.

    Raises:
        httpx.HTTPError: it broke off too often; what came is kept.
        SourceError: all came, but its sha256 is wrong; it is removed.
        UserError: the disk is full.
    """
    for fresh in (False, True):
        resumed = not fresh and part.exists() and part.stat().st_size > 0
        for attempt in _patiently(part):
            with attempt:
                _append(client, url, part, reporter)
        if sha256_of(part) == digest:
            return
        part.unlink()
        if not resumed:  # resumed: what an earlier process left may be what is wrong
            break
        reporter.say("the resumed download has a wrong sha256, starting over")
    raise SourceError(f"{url} has a wrong sha256", "tell whoever runs that server")


def _append(client: httpx.Client, url: str, part: Path, reporter: Reporter) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:  # all of it was there already, or it is not a part of this file
            total = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", ""))
            if total and int(total[1]) == have:
                return
            part.unlink()
            raise httpx.ReadError("the server cannot go on where it ended", request=response.request)
        response.raise_for_status()
        goes_on = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if goes_on else 0
        total_size = have + int(response.headers.get("Content-Length") or 0)
        if shutil.disk_usage(part.parent).free < total_size - have:
            raise disk_full(part, total_size - have)
        with writing(part):
            file = part.open("ab" if goes_on else "wb", buffering=0)
        with file:
            for block in response.iter_raw():
                with writing(part):
                    file.write(block)
                have += len(block)
                of = f" of {total_size / 1e6:.0f} MB, {100 * have // total_size} %" if total_size else " MB"
                reporter.tick(f"{have / 1e6:.0f}{of}")


def _unpack(part: Path, target: Path) -> Path:
    with tarfile.open(part) as archive:
        inside = next((m for m in archive if m.isfile() and m.name.rsplit("/", 1)[-1] == target.name), None)
        source = archive.extractfile(inside) if inside else None
        if not source:
            raise SourceError(f"the archive holds no {target.name}")
        with source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    part.unlink()
    return target
