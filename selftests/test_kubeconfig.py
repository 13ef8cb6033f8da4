"""Kubeconfig files as people have them: several at once, odd names, broken ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pvaffinity import kubeconfig
from pvaffinity.api import Api
from pvaffinity.errors import UserError


def config(name: str, server: str = "https://127.0.0.1:1", user: dict[str, Any] | None = None, **more: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user or {"token": f"token of {name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
        **more,
    }


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_of_two_entries_with_one_name_the_first_counts(tmp_path: Path) -> None:
    """Files are merged as kubectl does: contexts add up, the first of a name and the first current context count."""
    first = write(tmp_path / "first", config("a", "https://first"))
    second = write(tmp_path / "second", config("a", "https://second"))
    third = write(tmp_path / "third", config("b", "https://third"))
    merged = kubeconfig.read([first, second, third])
    assert merged.current == "a"
    assert merged.only()["clusters"] == [{"name": "a", "cluster": {"server": "https://first"}}]
    assert merged.only("b")["current-context"] == "b"
    assert merged.only("b")["users"] == [{"name": "b", "user": {"token": "token of b"}}]


def test_the_parts_of_a_context_may_stand_in_different_files(tmp_path: Path) -> None:
    """A context in one file may name a cluster and a user of another one."""
    entries = write(tmp_path / "entries", {**config("a"), "contexts": None, "current-context": ""})
    context = write(tmp_path / "context", {"contexts": config("a")["contexts"], "users": None})
    assert kubeconfig.read([context, entries]).only("a")["clusters"][0]["name"] == "a"


def test_names_may_hold_blanks_and_colons(tmp_path: Path) -> None:
    """A file, a context, a cluster and a user may have blanks and colons in their names."""
    odd = "arn:aws:eks:eu-1:42:cluster/my cluster"
    path = write(tmp_path / "my: files" / "kube config:2", config(odd))
    assert kubeconfig.read([path]).only(odd)["current-context"] == odd
    assert Api.from_kubeconfig(path, odd).server == "https://127.0.0.1:1"


def test_kubeconfig_may_name_several_files(tmp_path: Path) -> None:
    """KUBECONFIG is a list; files in it that do not exist are passed over, unless none of them does."""
    here = write(tmp_path / "a file", config("a"))
    assert kubeconfig.named_by({"KUBECONFIG": f"{tmp_path}/nosuch::{here}:{here}"}) == [here]
    assert kubeconfig.named_by({}) == []
    with pytest.raises(UserError, match="KUBECONFIG names no file that exists"):
        kubeconfig.named_by({"KUBECONFIG": f"{tmp_path}/nosuch"})


def test_files_are_named_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    """Certificates, token files and a plugin given as a path are found from the file that names them."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/login"}
    document = config("a", user={"client-key": "k.pem", "tokenFile": "/abs/token", "exec": plugin})
    user = kubeconfig.read([write(tmp_path / "d" / "config", document)]).only()["users"][0]["user"]
    assert user["client-key"] == f"{tmp_path}/d/k.pem"
    assert user["tokenFile"] == "/abs/token"
    assert user["exec"]["command"] == f"{tmp_path}/d/bin/login"
    plugin["command"] = "login"
    user = kubeconfig.read([write(tmp_path / "d" / "config", document)]).only()["users"][0]["user"]
    assert user["exec"]["command"] == "login"


@pytest.mark.parametrize(
    "text,what",
    [
        ("", "it is empty"),
        ("- a\n", "it is no mapping"),
        ("a: [", "it is no YAML"),
        ("kind: Pod\n", "it is of kind Pod, not Config"),
        ("kind: Config\nusers: [{user: {}}]\n", r"users\[0\] has no name"),
    ],
)
def test_what_is_no_kubeconfig_is_told_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    """A file that is no kubeconfig is named, with what is wrong with it."""
    with pytest.raises(UserError, match=what) as told:
        kubeconfig.read([write(tmp_path / "config", text)])
    assert "\n" not in told.value.what


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and a directory are told from each other."""
    with pytest.raises(UserError, match=r"no file that exists: ~nosuchuser/config"):
        kubeconfig.named_by({"KUBECONFIG": "~nosuchuser/config"})
    with pytest.raises(UserError, match=r"no kubeconfig .*nosuch"):
        kubeconfig.read([tmp_path / "nosuch"])
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        kubeconfig.read([tmp_path])


def test_an_unknown_context_is_told_with_a_guess(tmp_path: Path) -> None:
    """An unknown context is told with the one that was probably meant; so is a file without a current one."""
    path = write(tmp_path / "config", config("production"))
    with pytest.raises(UserError, match=r"no context 'prodction' in .*did you mean 'production'") as told:
        kubeconfig.read([path]).only("prodction")
    assert told.value.fix == "contexts there: production"
    del (document := config("a"))["current-context"]
    with pytest.raises(UserError, match="names no current context"):
        kubeconfig.read([write(path, document)]).only()


@pytest.mark.parametrize("section,what", [("clusters", "cluster"), ("users", "user")])
def test_a_context_without_its_parts_is_told(tmp_path: Path, section: str, what: str) -> None:
    """A context that names a cluster or a user that is not there is told with that name."""
    path = write(tmp_path / "config", {**config("a"), section: []})
    with pytest.raises(UserError, match=f"names the {what} 'a', which is not there"):
        kubeconfig.read([path]).only()


def test_a_certificate_that_is_missing_is_an_error_for_the_user(tmp_path: Path) -> None:
    """A kubeconfig that names a certificate file that does not exist is told, with the file."""
    document = config("a", user={"client-certificate": "nosuch.pem", "client-key": "nosuch.pem"})
    with pytest.raises(UserError, match=r"nosuch\.pem"):
        Api.from_kubeconfig(write(tmp_path / "config", document))


def test_a_copy_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """A private copy has mode 600 and says the same."""
    path = kubeconfig.write_private(config("a"), tmp_path / "copy")
    assert path.stat().st_mode & 0o777 == 0o600
    assert kubeconfig.read([path]).only()["current-context"] == "a"
