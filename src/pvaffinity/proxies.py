"""Which proxy a request goes through: Go's rule, so that whatever kubectl reaches is reached here, too.

Go never asks the environment's proxy for ``localhost`` and loopback addresses, and heeds ports and address ranges in
``NO_PROXY`` (golang.org/x/net/http/httpproxy). The libraries used here know neither, so none of them is left to read
the environment itself: they are told.
"""

from __future__ import annotations

__all__ = ["from_environment", "route"]

import ipaddress
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3

_PORTS = {"http": 80, "https": 443}


def from_environment(url: str, environment: Mapping[str, str] = os.environ, *, any_scheme: bool = False) -> str | None:
    """The proxy that the environment names for a URL; None where the way is direct.

    Args:
        url: absolute.
        environment: variables count in capitals or small letters; capitals first, as Go has it.
        any_scheme: heed ``ALL_PROXY``, too, as download tools do and Go does not.
    """
    parts = urlsplit(url)
    names = [f"{parts.scheme}_proxy", *["all_proxy"] * any_scheme]
    proxy = next((value for name in names if (value := _value(environment, name))), "")
    if not proxy or _direct(parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0), environment):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def route(settings: Any, named: str | None) -> None:
    """Let a client of the API server go the way that kubectl goes.

    Args:
        settings: a ``Configuration`` of the ``kubernetes`` package that has its host.
        named: the kubeconfig's ``proxy-url``, which counts for any host.
    """
    proxy = named or from_environment(settings.host)
    settings.proxy = proxy
    settings.no_proxy = ""  # has been heeded: the package would read it in its own way, for ``proxy-url``, too
    parts = urlsplit(proxy or "")
    if parts.username is not None:
        name, password = unquote(parts.username), unquote(parts.password or "")
        settings.proxy_headers = urllib3.make_headers(proxy_basic_auth=f"{name}:{password}")


def _value(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


def _direct(host: str, port: int, environment: Mapping[str, str]) -> bool:
    """Whether no proxy is asked for this host, whatever is set (``useProxy`` of httpproxy)."""
    address = _address(host)
    if host == "localhost" or (address and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in _value(environment, "no_proxy").split(",")]
    return any(entry == "*" or (entry and _matches(entry, host, address, port)) for entry in entries)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _matches(entry: str, host: str, address: _Address | None, port: int) -> bool:
    """Whether an entry of ``NO_PROXY`` is about this host: a range, an address or a domain.

    The latter two may have a port. A leading dot leaves out the domain itself; what is malformed matches nothing.
    """
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, only = entry.rpartition(":") if _address(entry) is None else ("", "", "")
    name, only = (name.removeprefix("[").removesuffix("]"), only) if colon else (entry, "")
    if not name or (only and only != str(port)):
        return False
    if address or _address(name):
        return address == _address(name)
    name = name.removeprefix("*") if name.startswith("*.") else name
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")
