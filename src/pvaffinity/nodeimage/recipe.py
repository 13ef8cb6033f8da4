"""What goes into a node image, and the name that follows from it."""

from __future__ import annotations

__all__ = ["LABEL", "OWN", "REPOSITORY", "VERSION", "Recipe", "airgap_dir", "load_recipe"]

import functools
import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.local.bincache import Item, host
from pvaffinity.versions import Release

REPOSITORY = "pvaffinity.dev/node"
"""Images of ours are named ``pvaffinity.dev/node:v1.37.2-0123456789``; that host is asked for nothing."""
LABEL = "pvaffinity.dev/airgap"
"""Label of every image of ours; its value is the recipe's hash. Only such images get the air-gapped overlay."""
VERSION = "pvaffinity.dev/kubernetes"
"""Label with the Kubernetes version in an image of ours."""
OWN = "pvaffinity.dev/own-binaries"
"""Label of an image of ours whose Kubernetes binaries somebody named."""

_FORMAT = "1"  # of what the modules of this package make of the files
_KUBERNETES = ("kubelet", "kubeadm", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True)
class Recipe:
    """The contents of ``airgap/recipe.toml``, and a hash of all files there.

    Attributes:
        hash: ten hexadecimal digits.
    """

    directory: Path
    hash: str
    debian: str
    packages: Sequence[str]
    containerd: str
    cri_tools: str
    kind: str
    pause: Sequence[str]
    busybox: Sequence[str]
    masked: Sequence[str]

    def tag(self, version: str, binaries: str = "") -> str:
        """The image's name for a Kubernetes version such as ``1.37.2``.

        Args:
            version: without the leading ``v``.
            binaries: a digest of the binaries, where they are not the release's: such an image is another one, even
                if it tells the same version.
        """
        contents = hashlib.sha256(f"{self.hash} {binaries}".encode()).hexdigest()[:10] if binaries else self.hash
        return f"{REPOSITORY}:v{re.sub('[^A-Za-z0-9_.-]', '_', version)}-{contents}"

    @property
    def base(self) -> str:
        """Name of the image that all versions share: Debian alone."""
        return f"{REPOSITORY}-base:{self.debian}-{self.hash}"

    def kubernetes(self, release: Release) -> tuple[Item, ...]:
        """The binaries of the release."""
        return tuple(Item("kubernetes", release.version, name) for name in _KUBERNETES)

    @property
    def runtime(self) -> tuple[Item, ...]:
        """The programs in a node that are not of the release."""
        names = ("containerd", "containerd-shim-runc-v2", "ctr")
        return (
            *(Item("containerd", self.containerd, name) for name in names),
            Item("cri-tools", self.cri_tools, "crictl"),
        )

    @property
    def kind_item(self) -> Item:
        """The program kind itself."""
        return Item("kind", self.kind, "kind")


def airgap_dir() -> Path:
    """The directory with the recipe: the source tree's, or the copy inside an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "airgap"
    return inside if inside.is_dir() else package.parents[1] / "airgap"


@functools.cache
def load_recipe(directory: Path | None = None) -> Recipe:
    """Read the recipe.

    Raises:
        UserError: it is missing or malformed.
    """
    directory = directory or airgap_dir()
    path = directory / "recipe.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        digest = hashlib.sha256("\0".join([_FORMAT, *host()]).encode())
        for file in sorted(p for p in directory.iterdir() if p.is_file()):
            digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
        return Recipe(
            directory,
            digest.hexdigest()[:10],
            data["debian"],
            tuple(data["packages"]),
            data["containerd"],
            data["cri-tools"],
            data["kind"],
            tuple(data["pause"]),
            tuple(data["busybox"]),
            tuple(data["masked"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be used: {error!r}", "restore it: git checkout airgap") from error
