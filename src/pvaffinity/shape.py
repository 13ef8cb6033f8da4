"""Documents that somebody wrote or changed by hand: decoded, and every value checked to be of the type it must have.

What is wrong is told in one line with the place in the document, such as ``nodes[1].labels is 3, not a mapping``; the
caller knows the file and what to do about it.
"""

from __future__ import annotations

__all__ = ["ShapeError", "check_fields", "from_json", "from_yaml", "shaped"]

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import yaml

T = TypeVar("T")

_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "a mapping",
    list: "a list",
    types.NoneType: "null",
}


class ShapeError(ValueError):
    """A document is not what it must be; one line."""


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: what looks like a date is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_yaml(text: str) -> Any:
    """Decode YAML that says what JSON could say as well.

    Raises:
        ShapeError: it is none.
    """
    try:
        made = yaml.load(text, _Loader)
        json.dumps(made, allow_nan=False)
    except RecursionError:
        raise ShapeError("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ShapeError(str(error).splitlines()[0]) from error
    return made


def from_json(text: str | bytes) -> Any:
    """Decode JSON.

    Raises:
        ShapeError: it is none.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ShapeError("it is nested too deeply") from None
    except ValueError as error:
        raise ShapeError(f"it is no JSON: {error}") from error


def shaped(form: type[T], value: Any, where: str = "") -> T:
    """A decoded value as a type: checked all the way down, dataclasses and enumerations made of it.

    Args:
        form: ``str``, ``bool``, ``int``, ``float``, ``Any``, an enumeration, a dataclass, or lists, tuples, mappings
            and unions of them. A whole number is a ``float`` as well; true is no number.
        value: as YAML or JSON has it.
        where: its place in the document; empty for all of it.

    Raises:
        ShapeError: something is of another type, or a dataclass's field is missing or unknown.
    """
    made: T = _shaped(form, value, where)
    return made


def check_fields(forms: Mapping[str, Any], value: Any, where: str = "") -> Mapping[str, Any]:
    """See that a mapping has fields of these types, and answer it; a field that is left out is null. Others may follow.

    Raises:
        ShapeError: it is no mapping, or a field is of another type.
    """
    made = shaped(dict[str, Any], value, where)
    for name, form in forms.items():
        _shaped(form, made.get(name), f"{_below(where)}{name}")
    return made


def _shaped(form: Any, value: Any, where: str) -> Any:
    if form is Any:
        return value
    origin, parts = typing.get_origin(form) or form, typing.get_args(form)
    if origin in (typing.Union, types.UnionType):
        return _either(parts, value, where)
    if dataclasses.is_dataclass(origin):
        return _made(origin, value, where)
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        known = [member.value for member in origin]
        if value not in known:
            raise ShapeError(f"{_place(where)} is {_seen(value)}, not one of {', '.join(map(str, known))}")
        return origin(value)
    if issubclass(origin, Mapping):
        _check(dict, value, where)
        key, each = parts or (Any, Any)
        return {
            _shaped(key, k, f"a key of {_place(where)}"): _shaped(each, v, f"{_below(where)}{k}")
            for k, v in value.items()
        }
    if issubclass(origin, Sequence) and origin is not str:
        _check(list, value, where)
        items = [_shaped(parts[0] if parts else Any, item, f"{where}[{n}]") for n, item in enumerate(value)]
        return tuple(items) if origin is tuple else items
    _check(origin, value, where)
    return value


def _either(parts: tuple[Any, ...], value: Any, where: str) -> Any:
    """The first that fits; where none does, the last told is the one whose outer type is right."""
    told: ShapeError | None = None
    for part in parts:
        try:
            return _shaped(part, value, where)
        except ShapeError as error:
            if told is None or not str(error).startswith(f"{_place(where)} is "):
                told = error
    assert told is not None
    if str(told).startswith(f"{_place(where)} is "):
        wanted = " or ".join(dict.fromkeys(map(_name, parts)))
        raise ShapeError(f"{_place(where)} is {_seen(value)}, not {wanted}")
    raise told


def _made(form: Any, value: Any, where: str) -> Any:
    _check(dict, value, where)
    fields, hints = dataclasses.fields(form), _hints(form)
    for field in fields:
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and field.name not in value:
            raise ShapeError(f"{_below(where)}{field.name} is missing")
    for key in value:
        if key not in hints:
            raise ShapeError(f"{_below(where)}{key} is unknown")
    return form(**{key: _shaped(hints[key], each, f"{_below(where)}{key}") for key, each in value.items()})


@functools.cache
def _hints(form: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(form)
    return {field.name: hints[field.name] for field in dataclasses.fields(form)}


def _check(kind: type, value: Any, where: str) -> None:
    fits = isinstance(value, (int, float) if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise ShapeError(f"{_place(where)} is {_seen(value)}, not {_NAMES[kind]}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ShapeError(f"{_place(where)} is {value}, not {_NAMES[kind]}")


def _name(form: Any) -> str:
    origin = typing.get_origin(form) or form
    if dataclasses.is_dataclass(origin) or issubclass(origin, Mapping):
        return _NAMES[dict]
    return _NAMES[list] if issubclass(origin, Sequence) and origin is not str else _NAMES[origin]


def _place(where: str) -> str:
    return where or "the document"


def _below(where: str) -> str:
    return f"{where}." if where else ""


def _seen(value: Any) -> str:
    """A value as its author may know it, in one short line."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
