"""Flags of a control-plane component, as its command line has them: set over others for one run of it."""

from __future__ import annotations

__all__ = ["COMPONENTS", "check_component", "with_flags"]

from collections.abc import Mapping, Sequence

from pvaffinity.errors import UserError, did_you_mean

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""What can be stopped, and started with other flags."""

_GATES = "feature-gates"


def check_component(component: str) -> None:
    """See that the name is one of :data:`COMPONENTS`.

    Raises:
        UserError: it is not.
    """
    if component not in COMPONENTS:
        hint = did_you_mean(component, COMPONENTS)
        raise UserError(f"no component {component!r}{hint}", f"use one of {', '.join(COMPONENTS)}")


def with_flags(command: Sequence[str], flags: Mapping[str, str | None]) -> list[str]:
    """A command line with flags set over those it has.

    Args:
        command: a program and its arguments, flags in the form ``--name=value``.
        flags: values by name, without dashes; None takes the flag away. ``feature-gates`` is merged gate by gate with
            what is there, so that naming one gate leaves the others alone.

    Raises:
        UserError: a name begins with a dash or has a value in it.
    """
    for name in flags:
        if name.startswith("-") or "=" in name or not name:
            raise UserError(f"{name!r} is no flag's name", 'name it without dashes: {"feature-gates": "X=true"}')
    kept, gates = [], ""
    for argument in command:
        name, _, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("--") or name not in flags:
            kept.append(argument)
        elif name == _GATES:
            gates = ",".join(filter(None, (gates, value)))  # given twice, the component adds them up as well
    added = {name: value for name, value in flags.items() if value is not None}
    if gates and _GATES in added:
        added[_GATES] = _merged(gates, added[_GATES])
    return [*kept, *(f"--{name}={value}" for name, value in added.items())]


def _merged(before: str, over: str) -> str:
    gates: dict[str, str] = {}
    for pair in f"{before},{over}".split(","):
        name, sign, value = pair.partition("=")
        gates[name.strip()] = f"{sign}{value.strip()}"  # what is no pair is left for the component to refuse
    return ",".join(name + value for name, value in gates.items() if name)
