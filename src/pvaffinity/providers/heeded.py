"""Which provider heeds which option: with another one it is refused; instead of ``auto``, one that heeds it is taken.

Who names binaries and gets a cluster without them would read a verdict on something else than they asked for.
"""

from __future__ import annotations

__all__ = ["HEEDED", "heeding", "meant_for"]

from collections.abc import Mapping, Sequence

from pvaffinity.errors import UserError

HEEDED: Mapping[str, tuple[str, ...]] = {
    "--binaries": ("local",),
    "--kind-bin": ("kind",),
    "--kind-image": ("kind",),
    "--kind-kubectl-bin": ("kind", "existing"),
    "--kubeconfig": ("existing",),
    "--context": ("existing",),
    "--allow-node-labels": ("existing",),
}
"""The providers that heed an option; any other option is every provider's."""
_NAMES = {"local": "the provider local", "kind": "the provider kind", "existing": "a cluster that exists"}


def heeding(wanted: str, given: Sequence[str]) -> str:
    """The provider wanted; instead of ``auto``, the first that heeds the options given. Without any, ``auto`` stays.

    Args:
        wanted: ``auto`` or a provider.
        given: options of :data:`HEEDED`.

    Raises:
        UserError: the provider does not heed one of them, or no provider heeds all.
    """
    for option in given:
        if wanted not in ("auto", *HEEDED[option]):
            raise _refusal(option, wanted)
    if wanted != "auto" or not given:
        return wanted
    for option in given:
        if HEEDED[option] == ("existing",):  # never by itself: it would change a cluster that has other users
            raise _refusal(option, wanted)
    fitting = [name for name in ("local", "kind") if all(name in HEEDED[option] for option in given)]
    if not fitting:
        raise UserError(f"no provider heeds {' and '.join(given)} together", "leave one of them out")
    return fitting[0]


def meant_for(option: str) -> str:
    """Whom an option is for, in words."""
    return " or ".join(_NAMES[name] for name in HEEDED[option])


def _refusal(option: str, provider: str) -> UserError:
    instead = " or ".join(f"--provider {name}" for name in HEEDED[option])
    besides = "" if provider == "auto" else f", not for {_NAMES.get(provider, provider)}"
    return UserError(f"{option} is for {meant_for(option)}{besides}", f"use {instead}, or leave {option} out")
