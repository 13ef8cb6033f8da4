"""Find out quickly, and not twice, that a download host cannot be reached."""

from __future__ import annotations

__all__ = ["reachable"]

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from pvaffinity import web

_DEADLINE = 4.0  # seconds for everything: name lookup, proxy, connection, TLS, first byte
_REMEMBER = 600.0  # seconds
_decided: dict[str, str] = {}  # by key: why unreachable, or ""
_lock = threading.Lock()


def reachable(probes: Mapping[str, str], memory: Path, *, insist: bool = False) -> dict[str, str]:
    """Try hosts side by side; any HTTP answer counts as reachable.

    Decided once per process; that a host was unreachable is remembered in ``memory`` for ten minutes, for the same
    proxy settings.

    Args:
        probes: base URL → a small file below it.
        memory: a file; that it cannot be written is no error.
        insist: forget what was decided.

    Returns:
        Base URL → why it is unreachable.
    """
    with _lock:
        keys = {base: _key(base) for base in probes}
        known = {} if insist else {**_recall(memory), **_decided}
        asked = {base: url for base, url in probes.items() if keys[base] not in known}
        answers = _ask(asked)
        _decided.update({keys[base]: why for base, why in answers.items()})
        if any(answers.values()):
            _remember(memory, {keys[base]: why for base, why in answers.items() if why})
        reasons = {base: answers[base] if base in answers else known[keys[base]] for base in probes}
    return {base: why for base, why in reasons.items() if why}


def _ask(urls: Mapping[str, str]) -> dict[str, str]:
    # Threads, since a name lookup that hangs heeds no timeout; daemons, so that it does not hold up the end either.
    answers = dict.fromkeys(urls, f"no answer within {_DEADLINE:.0f} s")
    threads = [
        threading.Thread(target=_ask_one, args=(base, url, answers), daemon=True, name=f"probe {base}")
        for base, url in urls.items()
    ]
    end = time.monotonic() + _DEADLINE
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return dict(answers)


def _ask_one(base: str, url: str, answers: dict[str, str]) -> None:
    try:
        with web.client(_DEADLINE) as client, client.stream("GET", url):
            answers[base] = ""
    except httpx.TimeoutException:
        pass
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        answers[base] = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def _key(base: str) -> str:
    proxies = "".join(sorted(f"{k.lower()}={v}" for k, v in os.environ.items() if k.lower().endswith("_proxy")))
    return f"{base} {hashlib.sha256(proxies.encode()).hexdigest()[:8]}" if proxies else base


def _recall(memory: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
        entries = json.loads(memory.read_text(encoding="utf-8"))
        now = time.time()
        return {
            key: f"{e['why']}, tried {now - e['at']:.0f} s ago"
            for key, e in entries.items()
            if 0 <= now - e["at"] < _REMEMBER
        }
    return {}


def _remember(memory: Path, reasons: Mapping[str, str]) -> None:
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary = memory.with_suffix(f".{os.getpid()}")
        try:
            entries = dict(json.loads(memory.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            entries = {}
        entries |= {key: {"why": why, "at": time.time()} for key, why in reasons.items()}
        temporary.write_text(json.dumps(entries), encoding="utf-8")
        temporary.replace(memory)
