"""The templates of HTML pages; a name that a template does not know is an error."""

from __future__ import annotations

__all__ = ["template"]

import functools
from collections.abc import Callable

import jinja2


@functools.cache
def template(name: str, **filters: Callable[..., str]) -> jinja2.Template:
    """A template of this package, with filters of its own."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pvaffinity.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)
