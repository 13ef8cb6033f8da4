"""Clients for what is fetched from the web; which proxy a request goes through is said by :mod:`pvaffinity.proxies`."""

from __future__ import annotations

__all__ = ["client"]

import httpx

from pvaffinity import proxies


class _Routed(httpx.BaseTransport):
    """Sends each request, also one that a redirect asks for, the way that its own host wants."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._ways: dict[str | None, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        proxy = proxies.from_environment(str(request.url), any_scheme=True)
        if proxy not in self._ways:
            self._ways[proxy] = httpx.HTTPTransport(proxy=proxy, retries=self._retries)
        return self._ways[proxy].handle_request(request)

    def close(self) -> None:
        for way in self._ways.values():
            way.close()


def client(timeout: httpx.Timeout | float, *, retries: int = 0) -> httpx.Client:
    """A client that follows redirects.

    Args:
        timeout: seconds for each step of a request.
        retries: how often a connection is tried again that could not be made.
    """
    return httpx.Client(transport=_Routed(retries), follow_redirects=True, timeout=timeout)
