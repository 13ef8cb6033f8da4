"""Which Kubernetes releases there are, read from ``clusterconfigs/versions.toml``."""

from __future__ import annotations

__all__ = ["Release", "Versions", "clusterconfigs_dir", "load_versions"]

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pvaffinity.errors import UserError, did_you_mean


@dataclass(frozen=True, order=True)
class Release:
    """One Kubernetes release the project can run.

    Attributes:
        minor: such as ``1.37``, the way tests and options name it.
        version: such as ``1.37.2``, what is fetched or built.
        has_gate: whether the release knows the gate MutablePVNodeAffinity at all.
        kind_image: the node image that kind publishes for this minor version, by digest; empty if there is none.
    """

    key: tuple[int, ...]
    minor: str
    version: str
    has_gate: bool
    kind_image: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.version


@dataclass(frozen=True)
class Versions:
    """All releases, oldest first, and the etcd that goes with them."""

    releases: tuple[Release, ...]
    etcd: str
    next: Release | None

    @property
    def newest(self) -> Release:
        """The newest final release: the default of every command."""
        return self.releases[-1]

    def find(self, wanted: str, *, besides: Sequence[str] = ()) -> Release:
        """Resolve ``1.37``, ``v1.37``, ``1.37.1``, ``next`` or ``1.38.0-alpha.0.12+abc``.

        Args:
            wanted: what the user wrote.
            besides: words that the caller takes as well, such as ``all``; for the advice.

        Raises:
            UserError: no such release is known.
        """
        text = wanted.strip().removeprefix("v")
        if text == "next" and self.next:
            return self.next
        known = [*self.releases, *([self.next] if self.next else [])]
        for release in known:
            if text in (release.minor, release.version):
                return release
        match = re.fullmatch(r"(\d+\.\d+)\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", text)
        if match:
            for release in known:
                if release.minor == match[1]:
                    return _release(release.minor, text, release.has_gate)
        names = [*(r.minor for r in self.releases), *(["next"] if self.next else []), *besides]
        # A whole minor version that is not known is no slip of the pen: any other would be as close.
        hint = "" if re.fullmatch(r"\d+\.\d+", text) else did_you_mean(text, names)
        ahead = [f"next ({self.next.minor})"] if self.next else []
        listed = [*(r.minor for r in self.releases), *ahead, *besides]
        raise UserError(
            f"unknown Kubernetes version {wanted!r}{hint}",
            f"use one of {', '.join(listed)}, or a patch release of these",
        )


def _release(minor: str, version: str, gate: bool, kind_image: str = "") -> Release:
    numbers = re.findall(r"\d+", version.partition("+")[0])
    return Release(tuple(int(n) for n in numbers), minor, version, gate, kind_image)


def clusterconfigs_dir() -> Path:
    """The directory with the cluster configurations: the source tree's, or the copy inside an installed wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "clusterconfigs"
    return inside if inside.is_dir() else package.parents[1] / "clusterconfigs"


def load_versions(path: Path | None = None) -> Versions:
    """Read ``versions.toml``.

    Raises:
        UserError: the file is missing or malformed.
    """
    path = path or clusterconfigs_dir() / "versions.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        releases = tuple(
            sorted(_release(r["minor"], r["version"], r["gate"], r.get("kind_image", "")) for r in data["release"])
        )
        ahead = data.get("next")
        return Versions(
            releases, data["etcd"], _release(ahead["minor"], ahead["version"], ahead["gate"]) if ahead else None
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} cannot be used: {error!r}", "restore it: git checkout clusterconfigs/versions.toml"
        ) from error
