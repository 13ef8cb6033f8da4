"""Kubeconfig files: read, merged the way kubectl does (k8s.io/client-go tools/clientcmd/loader.go), cut to one context.

Nothing is ever written back: what a session works with is a private copy of the one context it was given.
"""

from __future__ import annotations

__all__ = ["Kubeconfig", "named_by", "read", "write_private"]

import contextlib
import difflib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pvaffinity.errors import UserError
from pvaffinity.objects import Obj
from pvaffinity.paths import expanded
from pvaffinity.shape import ShapeError, check_fields, from_yaml, shaped

_SOURCE = "pvaffinity.dev/source"
"""Extension of a private copy that says what it was made of."""
_TEXT = str | None
_CLUSTER = {
    **dict.fromkeys(("server", "certificate-authority", "certificate-authority-data"), _TEXT),
    **dict.fromkeys(("tls-server-name", "proxy-url"), _TEXT),
    "insecure-skip-tls-verify": bool | None,
}
_USER = {
    **dict.fromkeys(("token", "tokenFile", "username", "password"), _TEXT),
    **dict.fromkeys(("client-certificate", "client-certificate-data", "client-key", "client-key-data"), _TEXT),
    "exec": dict[str, Any] | None,
    "auth-provider": dict[str, Any] | None,
}
_SECTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "clusters": ("cluster", _CLUSTER),
    "users": ("user", _USER),
    "contexts": ("context", dict.fromkeys(("cluster", "user", "namespace"), _TEXT)),
}
"""What an entry of a section is called, and the fields that are read (k8s.io/client-go tools/clientcmd/api/v1)."""
_PLUGIN = {
    "apiVersion": str,
    "command": str,
    "args": list[str] | None,
    "env": list[dict[str, str]] | None,
    "installHint": _TEXT,
    "provideClusterInfo": bool | None,
}
_VARIABLE = {"name": str, "value": str}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields that name a file, relative to the kubeconfig they stand in."""


@dataclass(frozen=True)
class Kubeconfig:
    """One or several files as one.

    Attributes:
        files: where it was read; of a private copy, the user's files that it was made of.
        current: the files' current context; empty where they name none.
        clusters: by name, file names in them made absolute; users and contexts likewise.
    """

    files: tuple[Path, ...]
    current: str = ""
    clusters: Mapping[str, Obj] = field(default_factory=dict, repr=False)
    users: Mapping[str, Obj] = field(default_factory=dict, repr=False)
    contexts: Mapping[str, Obj] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return ", ".join(str(path) for path in self.files)

    def unusable(self, why: str) -> UserError:
        """The error that says so, with a command to see more."""
        return UserError(f"kubeconfig {self} cannot be used: {why}", f"check it with: {self.kubectl} config view")

    @property
    def kubectl(self) -> str:
        """How a command line with kubectl begins that uses these files."""
        if len(self.files) == 1:
            return f"kubectl --kubeconfig {shlex.quote(str(self.files[0]))}"
        return f"KUBECONFIG={shlex.quote(os.pathsep.join(map(str, self.files)))} kubectl"

    def only(self, context: str | None = None) -> Obj:
        """A document with one context and what belongs to it; the files' current context by default.

        Raises:
            UserError: there is no such context, or it names a cluster or user that is not there.
        """
        name = context or self.current
        known = ", ".join(self.contexts) or "none at all"
        if not name:
            raise UserError(f"kubeconfig {self} names no current context", f"name one of its contexts: {known}")
        if name not in self.contexts:
            close = difflib.get_close_matches(name, self.contexts, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UserError(f"no context {name!r} in kubeconfig {self}{hint}", f"contexts there: {known}")
        chosen = self.contexts[name]
        document: Obj = {"apiVersion": "v1", "kind": "Config", "current-context": name, "users": []}
        document["extensions"] = [{"name": _SOURCE, "extension": {"files": [str(p.absolute()) for p in self.files]}}]
        document["contexts"] = [{"name": name, "context": chosen}]
        cluster, user = str(chosen.get("cluster") or ""), str(chosen.get("user") or "")
        for what, wanted, there in (("cluster", cluster, self.clusters), ("user", user, self.users)):
            if wanted not in there and (wanted or what == "cluster"):
                raise UserError(
                    f"context {name!r} of kubeconfig {self} names the {what} {wanted!r}, which is not there",
                    f"add it, or name another context: {known}",
                )
        document["clusters"] = [{"name": cluster, "cluster": self.clusters[cluster]}]
        if user:
            document["users"] = [{"name": user, "user": self.users[user]}]
        return document


def named_by(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that ``KUBECONFIG`` names; missing ones are passed over, as kubectl does, unless all of them are.

    Raises:
        UserError: it names no file that exists.
    """
    names = [expanded(Path(name)) for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    there = [path for path in dict.fromkeys(names) if path.exists()]
    if names and not there:
        raise UserError(
            f"KUBECONFIG names no file that exists: {', '.join(map(str, names))}", "correct it, or use --kubeconfig"
        )
    return there


def read(paths: Sequence[Path]) -> Kubeconfig:
    """Read files and merge them: of two entries with one name, and of two current contexts, the first counts.

    Raises:
        UserError: a file is missing, cannot be read, or is no kubeconfig.
    """
    current, files = "", list[Path]()
    merged: dict[str, dict[str, Obj]] = {section: {} for section in _SECTIONS}
    for path in paths:
        data = _load(path)
        files += _source(data) or [path]
        try:
            current = current or shaped(str, data.get("current-context") or "", "current-context")
            for section in _SECTIONS:
                for name, entry in _entries(data, section, path):
                    merged[section].setdefault(name, entry)
        except ShapeError as error:
            raise _unusable(path, str(error)) from error
    return Kubeconfig(tuple(files), current, **merged)


def write_private(document: Mapping[str, Any], path: Path) -> Path:
    """Write a document so that only its owner can read it; answers the path."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
    return path


def _source(data: Obj) -> list[Path]:
    """The files that a private copy was made of: its reader may have no copy to look at any more."""
    entries = data.get("extensions")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == _SOURCE:
            with contextlib.suppress(ShapeError):
                return [Path(name) for name in shaped(dict[str, list[str]], entry.get("extension")).get("files", ())]
    return []


def _load(path: Path) -> Obj:
    try:
        data = from_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"no kubeconfig {path}", "name a file that exists: --kubeconfig FILE") from error
    except OSError as error:
        raise UserError(f"kubeconfig {path} cannot be read: {error.strerror}", f"see: ls -l {path}") from error
    except (ShapeError, UnicodeDecodeError) as error:
        raise _unusable(path, f"it is no YAML: {error}") from error
    if not isinstance(data, dict):
        raise _unusable(path, "it is empty" if data is None else "it is no mapping")
    if data.get("kind", "Config") != "Config":
        raise _unusable(path, f"it is of kind {data['kind']}, not Config")
    return data


def _entries(data: Obj, section: str, path: Path) -> list[tuple[str, Obj]]:
    key, fields = _SECTIONS[section]
    found: list[tuple[str, Obj]] = []
    for number, item in enumerate(shaped(list[dict[str, Any]], data.get(section) or [], section)):
        where = f"{section}[{number}].{key}"
        if not isinstance(item.get("name"), str):
            raise ShapeError(f"{section}[{number}] has no name")
        entry = {name: value for name, value in check_fields(fields, item.get(key) or {}, where).items() if value}
        if "exec" in entry:
            for each, variable in enumerate(check_fields(_PLUGIN, entry["exec"], f"{where}.exec").get("env") or ()):
                check_fields(_VARIABLE, variable, f"{where}.exec.env[{each}]")
        found.append((item["name"], _absolute(entry, path.absolute().parent)))
    return found


def _absolute(entry: Obj, base: Path) -> Obj:
    """Names of files made absolute; a plugin's command only where it is a path and not a name to look up."""
    entry = {key: str(base / value) if key in _FILES else value for key, value in entry.items()}
    plugin = entry.get("exec")
    if plugin and os.sep in plugin["command"]:
        entry["exec"] = {**plugin, "command": str(base / plugin["command"])}
    return entry


def _unusable(path: Path, why: str) -> UserError:
    return Kubeconfig((path,)).unusable(why)
