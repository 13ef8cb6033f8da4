"""Documents that somebody wrote or changed by hand: decoded, and every value checked to be of the type it must have.

What is wrong is told in one line with the place in the document, such as ``nodes[1].labels is 3: input should be a
mapping``; the caller knows the file and what to do about it.
"""

from __future__ import annotations

__all__ = ["ShapeError", "check_fields", "from_json", "from_yaml", "shaped"]

import contextlib
import functools
import json
from collections.abc import Hashable, Mapping
from typing import Any, NoReturn, TypeVar, cast

import pydantic
import yaml

T = TypeVar("T")


class ShapeError(ValueError):
    """A document is not what it must be; one line."""


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: what looks like a date is a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_yaml(text: str) -> Any:
    """Decode YAML that says what JSON could say as well; JSON itself, too, which may have tabs where YAML must not.

    Raises:
        ShapeError: it is none.
    """
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ShapeError):
            return from_json(text)
    try:
        return from_json(json.dumps(yaml.load(text, _Loader), allow_nan=False))
    except RecursionError:
        raise ShapeError("it is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = (error.problem or str(error)).splitlines()[0]
        raise ShapeError(f"line {mark.line + 1}: {why}" if mark else why) from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ShapeError(str(error).splitlines()[0]) from error


def from_json(text: str | bytes) -> Any:
    """Decode JSON.

    Raises:
        ShapeError: it is none.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ShapeError("it is nested too deeply") from None
    except ValueError as error:
        raise ShapeError(f"it is no JSON: {error}") from error


def shaped(form: type[T], value: Any, where: str = "") -> T:
    """A decoded value as a type: checked all the way down, dataclasses and enumerations made of it.

    Nothing is converted that JSON tells apart: a text is no number, nor is true; a whole number is a ``float``, too.

    Args:
        form: whatever pydantic knows of plain types, enumerations and dataclasses.
        value: as YAML or JSON has it.
        where: its place in the document; empty for all of it.

    Raises:
        ShapeError: something is of another type, or a dataclass's field is missing or unknown.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        made: T = _adapter(cast(Hashable, form)).validate_json(text, strict=True, extra="forbid")
    except pydantic.ValidationError as error:
        raise ShapeError(_told(error, where)) from None
    except RecursionError:
        raise ShapeError(f"{where or 'the document'} is nested too deeply") from None
    except ValueError as error:
        raise ShapeError(f"{where or 'the document'}: {error}") from error
    return made


def check_fields(forms: Mapping[str, Any], value: Any, where: str = "") -> Mapping[str, Any]:
    """See that a mapping has fields of these types, and answer it; a field that is left out is null. Others may follow.

    Raises:
        ShapeError: it is no mapping, or a field is of another type.
    """
    made = shaped(dict[str, Any], value, where)
    for name, form in forms.items():
        shaped(form, made.get(name), f"{where}.{name}" if where else name)
    return made


@functools.cache
def _adapter(form: Hashable) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(cast(Any, form))


def _told(error: pydantic.ValidationError, where: str) -> str:
    """The first thing wrong, with its place and with what is there instead."""
    first = error.errors(include_url=False)[0]
    for step in first["loc"]:
        where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else step
    where = where or "the document"
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "unexpected_keyword_argument":
        return f"{where} is unknown"
    wanted = first["msg"].replace("an object", "a mapping")  # JSON's word, where we read YAML and speak of mappings
    return f"{where} is {_seen(first['input'])}: {wanted[0].lower()}{wanted[1:]}"


def _seen(value: Any) -> str:
    """A value as its author may know it, in one short line."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
