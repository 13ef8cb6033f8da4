"""Where clusters come from: one small protocol, one module per provider, and the choice between them."""

from __future__ import annotations

__all__ = ["PROVIDERS", "Choice", "choose", "load"]

from dataclasses import dataclass
from pathlib import Path

from pvaffinity.errors import UserError
from pvaffinity.providers.base import Provider

PROVIDERS = ("local",)
"""Every provider's name."""


@dataclass(frozen=True)
class Choice:
    """A provider's name, and why it was taken."""

    name: str
    why: str


def choose(wanted: str) -> Choice:
    """Resolve ``auto``.

    Raises:
        UserError: no provider has that name.
    """
    if wanted == "auto":
        return Choice("local", "the embedded provider; it needs neither root nor a container engine")
    if wanted not in PROVIDERS:
        raise UserError(f"unknown provider {wanted!r}", f"use one of auto, {', '.join(PROVIDERS)}")
    return Choice(wanted, "asked for")


def load(name: str, *, binaries: Path | None = None) -> Provider:
    """Import a provider; its own dependencies are imported only now.

    Args:
        name: one of :data:`PROVIDERS`.
        binaries: a directory with Kubernetes binaries, for the local provider.
    """
    from pvaffinity.providers.local import LocalProvider

    return LocalProvider(binaries=binaries)
