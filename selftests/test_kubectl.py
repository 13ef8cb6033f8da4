"""kubectl's error output (as printed by 1.34, 1.35 and 1.37) and running it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pvaffinity.errors import Cause, UserError
from pvaffinity.kubectl import Completed, Kubectl, KubectlError, parse_refusal
from pvaffinity.outcomes import FORBIDDEN, IMMUTABLE, Accepted, Refused

TERM = "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions"
ONE = (
    'The PersistentVolume "pv-a" is invalid: nodeAffinity: Invalid value: {"Required":{"NodeSelectorTerms":'
    '[{"MatchExpressions":[{"Key":"topology.kubernetes.io/region","Operator":"In","Values":["us-east1"]}],'
    '"MatchFields":null}]}}: field is immutable, except for updating from beta label to GA\n'
)
LOCAL_CLEARED = (
    'The PersistentVolume "pv-a" is invalid: \n'
    "* spec.nodeAffinity: Required value: Local volume requires node affinity\n"
    "* nodeAffinity: Invalid value: null: field is immutable, except for updating from beta label to GA\n"
)
MANY = (
    'The PersistentVolume "pv-a" is invalid: \n'
    f'* {TERM}[0].operator: Invalid value: "Foo": not a valid selector operator\n'
    f"* {TERM}[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'\n"
    f"* {TERM}[1].key: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.'\n"
)


@pytest.mark.parametrize(
    ("stderr", "refused"),
    [
        (ONE, IMMUTABLE),
        (
            LOCAL_CLEARED,
            Refused(422, "Invalid", IMMUTABLE.causes | {Cause("FieldValueRequired", "spec.nodeAffinity")}),
        ),
        (
            MANY,
            Refused(
                422,
                "Invalid",
                frozenset(
                    {
                        Cause("FieldValueInvalid", f"{TERM}[0].operator"),
                        Cause("FieldValueRequired", f"{TERM}[1].values"),
                        Cause("FieldValueInvalid", f"{TERM}[1].key"),
                    }
                ),
            ),
        ),
        (
            'Error from server (Forbidden): persistentvolumes "pv-a" is forbidden: User "alice" cannot get resource '
            '"persistentvolumes" in API group "" at the cluster scope\n',
            FORBIDDEN,
        ),
        ('Error from server (NotFound): persistentvolumes "nosuch" not found\n', Refused(404, "NotFound")),
        ("Error from server (Conflict): Operation cannot be fulfilled\n", Refused(409, "Conflict")),
        (
            "The request is invalid: the server rejected our request due to an error in our request\n",
            Refused(422, "Invalid"),
        ),
        (
            'E1130 14:13:33.659692    3132 memcache.go:381] "Couldn\'t get current server API group list" err="x"\n'
            "error: You must be logged in to the server (the server has asked for the client to provide credentials)\n",
            Refused(401, "Unauthorized"),
        ),
        ("Warning: zone is deprecated since v1.17\n" + ONE, IMMUTABLE),
        ("The connection to the server 127.0.0.1:9 was refused - did you specify the right host or port?\n", None),
        ("error: unknown flag: --bogus\n", None),
        ("", None),
    ],
)
def test_parse_refusal(stderr: str, refused: Refused | None) -> None:
    """A refusal that kubectl printed compares equal to the one that the API gave; anything else is none."""
    assert parse_refusal(stderr) == refused


def test_message_is_kept() -> None:
    """The words of a cause stay readable, and do not count in comparing."""
    refused = parse_refusal(LOCAL_CLEARED)
    assert refused is not None
    assert {c.message for c in refused.causes} >= {"Required value: Local volume requires node affinity"}


def script(tmp_path: Path, body: str) -> Kubectl:
    binary = tmp_path / "kubectl"
    binary.write_text(f"#!/bin/sh\n{body}\n")
    binary.chmod(0o755)
    return Kubectl(binary, tmp_path / "config")


def test_run_leaves_the_users_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubectl gets the named kubeconfig and a cache of our own, and the user's KUBECONFIG and kuberc are off."""
    monkeypatch.setenv("KUBECONFIG", "/users/own")
    kubectl = script(tmp_path, 'echo "$@"; echo "$KUBECONFIG|$KUBERC"; cat')
    done = kubectl.run("get", "pv", input="hello")
    args, environment, piped = done.stdout.splitlines()
    assert args.startswith(f"--kubeconfig={tmp_path / 'config'} --cache-dir=")
    assert args.endswith(" get pv")
    assert environment == "|off"
    assert piped == "hello"
    cache = Path(args.split("--cache-dir=")[1].split()[0])
    assert cache.is_dir()
    del kubectl
    assert not cache.exists()


def test_run_that_does_not_end(tmp_path: Path) -> None:
    """A kubectl that hangs is killed and said to be too late."""
    with pytest.raises(KubectlError, match=r"kubectl get did not end within 0\.2 s"):
        script(tmp_path, "exec sleep 60").run("get", timeout=0.2)


@pytest.mark.parametrize(
    ("said", "tries"),
    [
        ("Unable to connect to the server: net/http: TLS handshake timeout", 3),
        ("Unable to connect to the server: read tcp: connection reset by peer", 1),
        ('Error from server: the message "net/http: TLS handshake timeout" is an answer', 1),
    ],
)
def test_a_kubectl_that_never_asked_the_server_is_run_again(tmp_path: Path, said: str, tries: int) -> None:
    """A write is made once at most: whatever may have reached the server, or was answered, is not said again."""
    kubectl = script(tmp_path, f"echo x >>{tmp_path}/tries; echo '{said}' >&2; exit 1")
    assert kubectl.run("patch").code == 1
    assert (tmp_path / "tries").read_text().count("x") == tries


def test_missing_binary(tmp_path: Path) -> None:
    """A kubectl that is not there is the user's to mend."""
    with pytest.raises(UserError, match="kubectl cannot be run"):
        Kubectl(tmp_path / "nosuch", tmp_path / "config").run("version")


def test_outcome() -> None:
    """Success is the stored object with its warnings, a refusal is a value, and no answer is an error."""
    done = Completed(
        ("patch",), 0, json.dumps({"kind": "PersistentVolume"}), "Warning: old key\nWarning: and another\n"
    )
    assert done.outcome == Accepted({})
    assert isinstance(done.outcome, Accepted)
    assert done.outcome.object == {"kind": "PersistentVolume"}
    assert done.outcome.warnings == ("old key", "and another")
    assert Completed(("patch",), 1, "", ONE).outcome == IMMUTABLE
    with pytest.raises(KubectlError, match="exited with 1: error: unknown flag"):
        _ = Completed(("patch",), 1, "", f"error: unknown flag{os.linesep}").outcome
