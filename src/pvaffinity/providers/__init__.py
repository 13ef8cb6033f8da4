"""Where clusters come from: one small protocol, one module per provider, and the choice between them."""

from __future__ import annotations

__all__ = ["PROVIDERS", "Choice", "choose", "demand", "load"]

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pvaffinity.errors import UserError, did_you_mean
from pvaffinity.providers.base import Provider
from pvaffinity.versions import Release, load_versions

if TYPE_CHECKING:
    from pvaffinity.providers.existing import Target

PROVIDERS = ("local", "kind", "existing")
"""Every provider's name."""


@dataclass(frozen=True)
class Choice:
    """A provider's name, and why it was taken."""

    name: str
    why: str


def choose(
    wanted: str, release: Release | None = None, *, image: str | None = None, kind: Path | None = None
) -> Choice:
    """Resolve ``auto``: kind where an engine answers, kind is there and a node image can be had; else local.

    Args:
        wanted: ``auto`` or one of :data:`PROVIDERS`.
        release: what will run, to see whether there is a node image for it; the newest by default.
        image: a node image that was asked for.
        kind: a kind program that was asked for.

    Raises:
        UserError: no provider has that name.
    """
    if wanted == "auto":
        return _auto(release or load_versions().newest, image, kind)
    if wanted not in PROVIDERS:
        hint = did_you_mean(wanted, ("auto", *PROVIDERS))
        raise UserError(f"unknown provider {wanted!r}{hint}", f"use one of auto, {', '.join(PROVIDERS)}")
    return Choice(wanted, "asked for")


def _auto(release: Release, image: str | None, kind: Path | None) -> Choice:
    from pvaffinity.engine import require
    from pvaffinity.providers import kind_setup

    if importlib.util.find_spec("pytest_kind") is None:
        return Choice("local", "pytest-kind is not installed")
    try:
        engine = require()
        found = kind_setup.find_kind(kind)
    except UserError as error:
        return Choice("local", error.what.partition(": ")[0])
    node = kind_setup.choose_image(engine, release, image)
    why = f"{engine.name} {engine.version} answers, kind {found.version} is there"
    if node.present:
        return Choice("kind", f"{why}, and so is the node image {node.reference.partition('@')[0]}")
    if reason := kind_setup.can_be_pulled(engine, node):
        return Choice(
            "local", f"{why}, but {node.reference.partition('@')[0]} cannot be pulled: {reason.rpartition(': ')[2]}"
        )
    return Choice("kind", f"{why}, and {node.reference.partition('@')[0]} can be pulled")


def demand(name: str, *, kind: Path | None = None) -> None:
    """See that the machine has what every cluster of a provider needs, whichever it is.

    Args:
        name: one of :data:`PROVIDERS`.
        kind: a kind program that was asked for.

    Raises:
        UserError: no engine or no kind, or no namespaces for the local provider.
    """
    if name == "kind":
        from pvaffinity.engine import require
        from pvaffinity.providers import kind_setup

        require()
        kind_setup.find_kind(kind)
    if name == "local":
        from pvaffinity.local import preflight

        preflight.check_namespaces()


def load(
    name: str,
    *,
    binaries: Path | None = None,
    image: str | None = None,
    kind: Path | None = None,
    kubectl: Path | None = None,
    target: Target | None = None,
) -> Provider:
    """Import a provider; its own dependencies are imported only now.

    Args:
        name: one of :data:`PROVIDERS`.
        binaries: a directory with Kubernetes binaries, for the local provider.
        image: a node image, for the provider kind.
        kind: a kind program, for the provider kind.
        kubectl: a kubectl, for the provider kind.
        target: which cluster is meant, for the provider existing.
    """
    if name == "existing":
        from pvaffinity.providers.existing import ExistingProvider

        return ExistingProvider(target)
    if name == "kind":
        from pvaffinity.providers.kind import KindProvider

        return KindProvider(image=image, kind=kind, kubectl=kubectl)
    from pvaffinity.providers.local import LocalProvider

    return LocalProvider(binaries=binaries)
