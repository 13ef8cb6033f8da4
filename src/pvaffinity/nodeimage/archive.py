"""Container images of one layer, written as the archive that ``docker save`` would write."""

from __future__ import annotations

__all__ = ["Entry", "ScratchImage", "add", "write_archive"]

import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pvaffinity.local.bincache import host


@dataclass(frozen=True)
class Entry:
    """A file, or with ``link`` a symbolic link, in a layer.

    Attributes:
        path: without leading slash.
        content: the bytes, or the file that has them.
    """

    path: str
    content: Path | bytes = b""
    mode: int = 0o644
    link: str = ""


@dataclass(frozen=True)
class ScratchImage:
    """An image ``FROM scratch``: a static program and little else."""

    names: Sequence[str]
    entries: Sequence[Entry]
    entrypoint: Sequence[str] = ()


def add(archive: tarfile.TarFile, entry: Entry) -> None:
    """Add an entry, owned by root and without a time: the same contents give the same bytes."""
    info = tarfile.TarInfo(entry.path)
    info.mode = stat.S_IMODE(entry.mode)
    if entry.link:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        archive.addfile(info)
    elif isinstance(entry.content, bytes):
        info.size = len(entry.content)
        archive.addfile(info, io.BytesIO(entry.content))
    else:
        info.size = entry.content.stat().st_size
        with entry.content.open("rb") as file:
            archive.addfile(info, file)


def write_archive(path: Path, images: Sequence[ScratchImage], scratch: Path) -> None:
    """Write the images into one archive.

    Args:
        path: of the archive.
        images: what to put into it.
        scratch: an empty directory for layers.
    """
    manifest = []
    with tarfile.open(path, "w") as archive:
        for number, image in enumerate(images):
            layer = scratch / f"{number}.tar"
            with tarfile.open(layer, "w") as content:
                for entry in image.entries:
                    add(content, entry)
            with layer.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            config = json.dumps(
                {
                    "architecture": host()[1],
                    "os": host()[0],
                    "config": {"Env": ["PATH=/usr/local/bin:/bin"], "Entrypoint": list(image.entrypoint)},
                    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                    "history": [{"created_by": "pvaffinity"}],
                }
            ).encode()
            config_name = f"{hashlib.sha256(config).hexdigest()}.json"
            add(archive, Entry(config_name, config))
            add(archive, Entry(f"{digest}/layer.tar", layer))
            layer.unlink()
            manifest.append({"Config": config_name, "RepoTags": list(image.names), "Layers": [f"{digest}/layer.tar"]})
        add(archive, Entry("manifest.json", json.dumps(manifest).encode()))
