"""Bearer tokens that do not last: from credential plugins (``exec``) and token files, renewed while a session runs.

The ``kubernetes`` package runs the plugin; when to run it again is decided here, since the package takes a token that
lasts less than five minutes for expired, does not notice a refused one, and only logs a plugin's failure.
"""

from __future__ import annotations

__all__ = ["Tokens", "tokens_of"]

import base64
import shlex
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubernetes.config.config_exception import ConfigException
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import ConfigNode

from pvaffinity.errors import UserError
from pvaffinity.objects import Obj
from pvaffinity.shape import shaped

_ANSWERED = ("token", "expirationTimestamp", "clientCertificateData", "clientKeyData")
_AHEAD = timedelta(seconds=5)  # a token is renewed this long before it expires


class Tokens:
    """A token for the next request. Safe to use from several threads; the plugin runs in one at a time.

    Args:
        fetch: gets a token, and when it expires if that is known.
    """

    def __init__(self, fetch: Callable[[], tuple[str, datetime | None]]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token = ""
        self._expires: datetime | None = None

    def current(self) -> str:
        """The token, fetched anew if there is none or it is about to expire.

        Raises:
            UserError: it cannot be had.
        """
        with self._lock:
            if not self._token or (self._expires is not None and datetime.now(UTC) >= self._expires - _AHEAD):
                self._token, self._expires = self._fetch()
            return self._token

    def refused(self, token: str) -> bool:
        """The server refused this token: forget it. False where the one that follows is the same."""
        with self._lock:
            if self._token == token:
                self._token, self._expires = self._fetch()
            return self._token != token


def tokens_of(user: Obj, cluster: Obj) -> Tokens | None:
    """The source of a kubeconfig user's tokens, None where it has none that change or its plugin gives certificates.

    Args:
        user: the user's entry; a plugin or token file that is taken over is removed from it, certificates are added.
        cluster: the cluster's entry, which some plugins want to see.

    Raises:
        UserError: the plugin failed.
    """
    if user.get("token"):
        user.pop("exec", None)  # kubectl prefers it too
    elif "tokenFile" in user:
        path = Path(user.pop("tokenFile"))
        return Tokens(lambda: (_read(path), datetime.now(UTC) + timedelta(minutes=1)))  # as often as kubectl does
    elif "exec" in user:
        plugin = user.pop("exec")
        first = [_run(plugin, cluster)]
        if first[0].get("token"):
            return Tokens(lambda: _token(plugin, first.pop() if first else _run(plugin, cluster)))
        _take_certificate(plugin, first[0], user)
    return None


def _run(plugin: Obj, cluster: Obj) -> Obj:
    try:
        status: Any = ExecProvider(ConfigNode("exec", plugin), None, ConfigNode("cluster", cluster)).run()
    except (ConfigException, OSError, TypeError, KeyError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _failed(plugin, why) from error
    try:
        made = shaped(dict[str, Any], status, "status")
        for key in _ANSWERED:
            shaped(str, made.get(key) or "", f"status.{key}")
        _expiry(made)
    except ValueError as error:
        raise _failed(plugin, f"its answer cannot be used: {error}") from error
    return made


def _failed(plugin: Obj, why: str) -> UserError:
    command = shlex.join([str(plugin.get("command", "")), *map(str, plugin.get("args") or ())])
    lines = why.removeprefix("exec: ").strip().splitlines() or ["no message"]
    hint = str(plugin.get("installHint") or "").strip().splitlines()
    fix = hint[0] if hint else f"run it by hand: {command}"
    return UserError(f"the kubeconfig's credential plugin failed: {lines[0]}", fix, detail="\n".join(lines[1:]))


def _token(plugin: Obj, status: Obj) -> tuple[str, datetime | None]:
    if not status.get("token"):
        raise _failed(plugin, "it answered no token this time")
    return status["token"], _expiry(status)


def _expiry(status: Obj) -> datetime | None:
    """When the token expires.

    Raises:
        ValueError: the answer does not say it as RFC 3339 has it.
    """
    stamp = status.get("expirationTimestamp")
    expires = datetime.fromisoformat(stamp) if stamp else None
    if expires is not None and expires.tzinfo is None:
        raise ValueError(f"expirationTimestamp {stamp} has no time zone")
    return expires


def _take_certificate(plugin: Obj, status: Obj, user: Obj) -> None:
    for key in ("certificate", "key"):
        pem = status.get(f"client{key.capitalize()}Data")
        if not pem:
            raise _failed(plugin, "it answered neither a token nor a certificate with its key")
        user[f"client-{key}-data"] = base64.b64encode(pem.encode()).decode()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"token file {path} cannot be read: {why}", f"see: ls -l {path}") from error
