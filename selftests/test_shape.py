"""What somebody wrote by hand: any value of any document may be of another type, and each is told in two lines."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes.config.exec_provider import ExecProvider

from pvaffinity.api import Api
from pvaffinity.clusterconfig import load_config
from pvaffinity.credentials import Tokens, tokens_of
from pvaffinity.errors import UserError
from pvaffinity.local.controlplane import feature_gates
from pvaffinity.local.node import kubelet_configuration, plan_nodes
from pvaffinity.providers.kind_document import document_for
from pvaffinity.providers.kind_setup import NodeImage
from pvaffinity.races import Record
from pvaffinity.report import Conformance, earlier, matrix, merge, page, publish, publishing
from pvaffinity.report.history import History
from pvaffinity.shape import ShapeError, from_yaml, shaped
from pvaffinity.versions import load_versions
from selftests.engines import engine

OTHERS = (None, "strange", "", 3, -1.5, True, [], [1], [None], ["a"], {}, {"strange": 1}, {"a": None})
DATA = Path(__file__).parent / "data"
LEG = DATA / "legs" / "results-local-1.37" / "conformance.json"
RACES = DATA / "races" / "handmade.jsonl"
ENGINE = engine(cgroup=1)
OFFICIAL = NodeImage("kindest/node:v1.37.0", ours=False, present=True)
OURS = NodeImage("pvaffinity.dev/node:v1.37.2-0123456789", ours=True, present=True)


def places(node: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value of a document, itself included; of a list's items the first and the last."""
    yield way
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*way, key))
    elif isinstance(node, list):
        for number in {0, len(node) - 1} if node else ():
            yield from places(node[number], (*way, number))


def spoilt(document: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The document again and again, with another value in another place each time."""
    for way in places(document):
        for other in OTHERS:
            made = copy.deepcopy({"": document})
            node: Any = made
            *above, last = ("", *way)
            for step in above:
                node = node[step]
            node[last] = other
            yield way, made[""]


def refusal(use: Callable[[], object], way: Any) -> UserError | None:
    """The error for the user, in one line each for what and for what to do; None where there was none."""
    try:
        use()
    except UserError as error:
        return error if "\n" not in error.what + error.fix else pytest.fail(f"{way}: {error}")
    except Exception as error:
        pytest.fail(f"{way}: {type(error).__name__}: {error}")
    return None


def try_all(document: Any, path: Path, write: Callable[[Any], str], use: Callable[[Path], object]) -> None:
    """Every spoilt document is used, or refused with the file's name."""
    refused = 0
    for way, made in spoilt(document):
        path.write_text(write(made), encoding="utf-8")
        if error := refusal(lambda: use(path), way):
            refused += 1
            assert path.name in str(error), (way, made)
    assert refused > 20


CLUSTER_PATCH = {
    "apiVersion": "kubeadm.k8s.io/v1beta3",
    "kind": "ClusterConfiguration",
    "apiServer": {"extraArgs": {"feature-gates": "MutablePVNodeAffinity=true"}},
    "scheduler": {"extraArgs": [{"name": "v", "value": "4"}]},
}
KUBELET_PATCH = {"kind": "KubeletConfiguration", "featureGates": {"A": True}, "evictionHard": {"a": "1"}}
KIND_DOCUMENT = {
    "kind": "Cluster",
    "apiVersion": "kind.x-k8s.io/v1alpha4",
    "name": "mine",
    "networking": {"ipFamily": "ipv4"},
    "featureGates": {"MutablePVNodeAffinity": True},
    "runtimeConfig": {"api/alpha": "true", "api/beta": True},
    "kubeadmConfigPatches": [json.dumps(CLUSTER_PATCH)],
    "nodes": [
        {"role": "control-plane", "image": "kindest/node:v1.37.0", "kubeadmConfigPatches": ["a: b"]},
        {"role": "worker", "labels": {"zone": "a", "rank": 3}},
    ],
}


def use_config(path: Path) -> None:
    """What both providers make of a configuration."""
    config = load_config(str(path))
    config.check_release(load_versions().find("1.34" if not config.gate_for("kube-apiserver") else "1.37"))
    for node in plan_nodes(config, path.parent):
        json.dumps(kubelet_configuration(node, config))
    feature_gates(config, "kube-apiserver")
    for image in (OFFICIAL, OURS):
        document_for(config, image, ENGINE, load_versions().newest)


@pytest.mark.parametrize("patch", [CLUSTER_PATCH, KUBELET_PATCH, None], ids=["cluster patch", "kubelet patch", "whole"])
def test_any_value_of_a_cluster_configuration_may_be_of_another_type(tmp_path: Path, patch: Any) -> None:
    """A cluster configuration with a wrong value somewhere is used as meant, or refused with file and field."""

    def write(document: Any) -> str:
        return json.dumps({**KIND_DOCUMENT, "kubeadmConfigPatches": [json.dumps(document)]} if patch else document)

    try_all(patch or KIND_DOCUMENT, tmp_path / "mine.yaml", write, use_config)


KUBECONFIG = {
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "n"}}],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True, "proxy-url": ""}}
    ],
    "users": [{"name": "c", "user": {"token": "t", "client-key-data": "", "tokenFile": ""}}],
}
ANSWER = {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z", "clientKeyData": "k"}
PLUGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "true",
    "args": ["a"],
    "env": [{"name": "A", "value": "b"}],
    "installHint": "get it",
    "provideClusterInfo": True,
}


def as_user(user: Any) -> str:
    return json.dumps({**KUBECONFIG, "users": [{"name": "c", "user": user}]})


@pytest.mark.parametrize(
    "document,write",
    [
        (KUBECONFIG, json.dumps),
        (PLUGIN, lambda plugin: as_user({"exec": plugin})),
        ({"name": "oidc", "config": {"id-token": "a.b.c"}}, lambda made: as_user({"auth-provider": made})),
    ],
    ids=["whole", "plugin", "auth provider"],
)
def test_any_value_of_a_kubeconfig_may_be_of_another_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Any, write: Callable[[Any], str]
) -> None:
    """A kubeconfig with a wrong value somewhere is used as meant, or refused with file and field."""
    answer = {"apiVersion": PLUGIN["apiVersion"], "kind": "ExecCredential", "status": ANSWER}
    monkeypatch.setattr(ExecProvider, "run", lambda self: answer["status"])
    try_all(document, tmp_path / "config", write, Api.from_kubeconfig)


def test_any_value_of_a_plugins_answer_may_be_of_another_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential plugin that answers strangely is told with its command, and no token is made up."""
    for way, answer in spoilt(ANSWER):
        monkeypatch.setattr(ExecProvider, "run", lambda self, answer=answer: answer)
        made: list[Tokens | None] = []
        error = refusal(lambda made=made: made.append(tokens_of({"exec": dict(PLUGIN)}, {})), way)
        if error:
            assert "credential plugin failed" in error.what
        else:
            assert made[0] is not None
            assert made[0].current() in ("t", "strange", "a")


def test_any_value_of_a_conformance_result_may_be_of_another_type(tmp_path: Path) -> None:
    """A conformance.json with a wrong value somewhere can be merged and shown, or is refused with file and field."""

    def use(path: Path) -> None:
        result = merge([path])
        matrix(result)
        page(result)

    (cluster, *_) = json.loads(LEG.read_text(encoding="utf-8"))["clusters"]
    race = Record.load(RACES).summary().to_dict()
    race |= {"title": "b to c", "steps": race["steps"][:1], "failures": [], "left_out": []}
    capability = {"name": "gate", "present": True, "evidence": "asked"}
    behaviour = {**cluster["behaviours"][0], "tests": cluster["behaviours"][0]["tests"][:1]}
    cluster |= {"races": [race], "capabilities": [capability], "behaviours": [behaviour], "notes": {"a": "b"}}
    document = {"schema": "pvaffinity-conformance/1", "suite_version": "1", "missing": [], "clusters": [cluster]}
    try_all(document, tmp_path / "conformance.json", json.dumps, use)


def test_any_value_of_a_history_may_be_of_another_type(tmp_path: Path) -> None:
    """A site's history with a wrong value somewhere can be added to, or is refused: it is never begun anew."""
    result, site = Conformance.load(LEG), tmp_path / "site"
    publish(result, site, History())
    document = json.loads((site / "history.json").read_text(encoding="utf-8"))
    path = site / "history.json"
    try_all(document, path, json.dumps, lambda _: publishing._index(earlier(str(site)), "", allure=False))


def test_any_value_of_a_saved_race_may_be_of_another_type(tmp_path: Path) -> None:
    """A saved race with a wrong value somewhere can be judged again, or is refused with file, line and field."""
    header, line, *_ = map(json.loads, RACES.read_text(encoding="utf-8").splitlines())

    def use(path: Path) -> None:
        str(Record.load(path).summary())

    try_all([header, line], tmp_path / "race.jsonl", as_lines, use)


def as_lines(made: Any) -> str:
    return "\n".join(map(json.dumps, made if isinstance(made, list) else [made]))


@dataclass(frozen=True)
class _Each:
    number: float
    names: tuple[str, ...] = ()
    more: Mapping[str, int] | None = None


@pytest.mark.parametrize(
    "value,told",
    [
        (3, "x is 3: input should be a mapping"),
        ({}, "x.number is missing"),
        ({"number": True}, "x.number is true: input should be a valid number"),
        ({"number": float("nan")}, "x: Out of range float values are not JSON compliant"),
        ({"number": 1, "nmaes": []}, "x.nmaes is unknown"),
        ({"number": 1, "names": ["a", None]}, "x.names[1] is null: input should be a valid string"),
        ({"number": 1, "more": []}, "x.more is a list: input should be a mapping"),
        ({"number": 1, "more": {"a": "1"}}, 'x.more.a is "1": input should be a valid integer'),
    ],
)
def test_what_is_wrong_is_told_with_its_place(value: Any, told: str) -> None:
    """The first value that does not fit is named with its place, with what it is and with what it should be."""
    with pytest.raises(ShapeError) as caught:
        shaped(_Each, value, "x")
    assert str(caught.value).startswith(told)  # newer Pythons say which number was out of range
    assert shaped(_Each, {"number": 1, "names": ["a"], "more": {"b": 2}}) == _Each(1, ("a",), {"b": 2})


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    """A date is a string, and so is every key; what JSON cannot say is refused, without a stack trace at any depth."""
    assert from_yaml("a: 2026-13-45") == {"a": "2026-13-45"}
    assert from_yaml("3: 4") == {"3": 4}
    assert from_yaml('{\n\t"a": 1\n}') == {"a": 1}  # YAML has no tabs there, JSON has
    assert from_yaml("{a: 1}") == {"a": 1}
    for text in ("a: .nan", "&a [*a]", "a: !!binary eA==", "[" * 5000, "? [a]\n: b", "\0", "1" * 5000):
        with pytest.raises(ShapeError) as caught:
            from_yaml(text)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text,told",
    [
        ("a: 1\nb: [\n", "line 3: expected the node content, but found '<stream end>'"),
        ("a: 1\n\tb: 2\n", "line 2: found character '\\t' that cannot start any token"),
        ("a: 1\nb: !!python/none x\n", "line 2: could not determine a constructor for the tag"),
    ],
)
def test_a_mistake_in_yaml_is_told_with_its_line(text: str, told: str) -> None:
    """Whoever wrote the document is told the line, counted from one, and what is wrong there."""
    with pytest.raises(ShapeError) as caught:
        from_yaml(text)
    assert str(caught.value).startswith(told)


def test_what_is_nested_too_deeply_is_told():
    """Whoever decodes may go deeper than whoever checks."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ShapeError, match="runs is nested too deeply"):
        shaped(list[Any], deep, "runs")
    while deep:  # from the outside in: freed all at once, it would be too deep for that as well
        deep = deep[0]
