"""The oracle that says which nodes a volume's affinity admits, and the affinity as a value."""

from __future__ import annotations

import itertools
import random

import pytest

from pvaffinity.affinity import (
    BETA_TO_GA,
    HOSTNAME,
    OPERATORS,
    REGION,
    ZONE,
    Affinity,
    Requirement,
    Term,
    allows,
    disk_key,
    in_region,
    in_zone,
    on_disk,
    on_hosts,
    where,
    with_beta_keys,
    with_ga_keys,
)

NODE_1 = {ZONE: "zone-a", REGION: "region-1", HOSTNAME: "w1"}
NODE_2 = {ZONE: "zone-b", REGION: "region-1", HOSTNAME: "w2"}
BARE = {HOSTNAME: "w3"}
VENDOR = "topology.disk.example/zone"
NOTHING = Affinity((Term(),))


def fields(operator: str, *values: str) -> Affinity:
    return Affinity((Term(fields=(Requirement("metadata.name", operator, values),)),))


def admitted(affinity: Affinity) -> str:
    return " ".join(n[HOSTNAME] for n in (NODE_1, NODE_2, BARE) if affinity.matches(n))


@pytest.mark.parametrize(
    ("affinity", "nodes"),
    [
        (in_zone("zone-a"), "w1"),
        (in_zone("zone-a", "zone-b"), "w1 w2"),
        (in_region("region-1"), "w1 w2"),
        (on_hosts("w3", "ghost"), "w3"),
        (in_region("region-1") & in_zone("zone-b"), "w2"),
        (in_zone("zone-a") & in_zone("zone-b"), ""),
        (in_zone("zone-a") | in_zone("zone-b"), "w1 w2"),  # field case B08
        (in_zone("zone-a") | in_zone("zone-b") | NOTHING, "w1 w2"),
        (NOTHING, ""),
        (Affinity(()), ""),
        (where(ZONE, "NotIn", "zone-b"), "w1 w3"),  # field case B12
        (where(ZONE, "Exists"), "w1 w2"),
        (where(ZONE, "DoesNotExist"), "w3"),
        (fields("In", "w1"), "w1 w2 w3"),  # field case A07: admits every node
        (fields("NotIn", "w1"), "w1 w2 w3"),
        (fields("In", "w1", "w2"), ""),  # does not parse: one value only
        (fields("Exists"), ""),
        (fields("In", "w1") & in_zone("zone-b"), "w2"),
        (where(ZONE, "Foo", "zone-a"), ""),
        (where(ZONE, "In"), ""),
        (where(ZONE, "Exists", "zone-a"), ""),
        (where("no key", "DoesNotExist"), ""),
        (where("-bad/prefix_", "DoesNotExist"), ""),
        (where(ZONE, "NotIn", "not a value"), ""),
        (where(ZONE, "Foo", "zone-a") | in_zone("zone-b"), "w2"),  # an unreadable term spoils only itself
        (where(ZONE, "Foo", "zone-a") & in_zone("zone-b"), ""),
    ],
    ids=str,
)
def test_oracle_table(affinity: Affinity, nodes: str) -> None:
    """The oracle admits exactly the nodes that the scheduler's node selector code admits."""
    assert admitted(affinity) == nodes


@pytest.mark.parametrize(
    ("operator", "bound", "label", "admitted"),
    [
        ("Gt", "5", "10", True),
        ("Gt", "5", "5", False),
        ("Gt", "5", "abc", False),
        ("Gt", "5", None, False),
        ("Lt", "5", "4", True),
        ("Lt", "5", "5", False),
        ("Lt", "5", None, False),
        ("Gt", "abc", "10", False),
        ("Gt", "5.0", "10", False),
        ("Gt", "-5", "10", False),  # an integer, but no label value
        ("Gt", "0x1", "10", False),
        ("Gt", "1_0", "50", False),
        ("Gt", "5", "1_0", False),
        ("Gt", "5", " 10", False),
        ("Gt", "5", "10\n", False),
        ("Gt", "5", "١٠", False),
        ("Gt", "05", "6", True),
        ("Gt", "5", "9223372036854775807", True),
        ("Gt", "5", "9223372036854775808", False),
        ("Gt", "", "10", False),
    ],
)
def test_gt_and_lt_are_strict_on_integers(operator: str, bound: str, label: str | None, admitted: bool) -> None:
    """Gt and Lt compare 64-bit integers strictly; whatever is none, on either side, admits no node (case B12)."""
    assert where("gen", operator, bound).matches({} if label is None else {"gen": label}) is admitted


def test_hostname_label_is_not_the_name() -> None:
    """Only the hostname label counts, whatever the node is called (field case A08)."""
    relabelled = {**NODE_1, HOSTNAME: "10.0.0.11"}
    assert not on_hosts("w1").matches(relabelled)
    assert on_hosts("10.0.0.11").matches(relabelled)


def test_two_keys_in_one_term_need_both_labels() -> None:
    """Vendor and standard key in one term admit fewer nodes than in two (field case A09)."""
    both, standard = {VENDOR: "zone-a", ZONE: "zone-a"}, {ZONE: "zone-a"}
    joined, either = (
        where(VENDOR, "In", "zone-a") & in_zone("zone-a"),
        where(VENDOR, "In", "zone-a") | in_zone("zone-a"),
    )
    assert [joined.matches(both), joined.matches(standard)] == [True, False]
    assert [either.matches(both), either.matches(standard)] == [True, True]


def test_terms_in_any_order() -> None:
    """The order of three zone terms does not matter (field case B11)."""
    zones = [in_zone(z).terms[0] for z in ("zone-a", "zone-b", "zone-c")]
    assert {admitted(Affinity(order)) for order in itertools.permutations(zones)} == {"w1 w2"}


def some_affinity(rng: random.Random) -> Affinity:
    def requirement() -> Requirement:
        operator = rng.choice(OPERATORS)
        values = () if "xist" in operator else tuple(rng.choices(["1", "2", "3", "a"], k=rng.choice((1, 1, 2))))
        return Requirement(rng.choice("xyz"), operator, values)

    return Affinity(tuple(Term(tuple(requirement() for _ in range(rng.randrange(3)))) for _ in range(rng.randrange(4))))


@pytest.mark.parametrize("seed", range(200))
def test_laws(seed: int) -> None:
    """Order never matters, terms only add nodes, requirements only take some, and JSON keeps everything."""
    rng = random.Random(seed)
    affinity, other = some_affinity(rng), some_affinity(rng)
    labels = {key: rng.choice(["1", "2", "3", "a"]) for key in "xyz" if rng.random() < 0.7}
    shuffled = Affinity(
        tuple(
            Term(tuple(rng.sample(t.expressions, len(t.expressions))))
            for t in rng.sample(affinity.terms, len(affinity.terms))
        )
    )
    assert shuffled.matches(labels) == affinity.matches(labels)
    assert (affinity | other).matches(labels) == (affinity.matches(labels) or other.matches(labels))
    assert (affinity | NOTHING).matches(labels) == affinity.matches(labels)
    if len(affinity.terms) == len(other.terms) == 1 and affinity.terms[0].expressions and other.terms[0].expressions:
        assert (affinity & other).matches(labels) == (affinity.matches(labels) and other.matches(labels))
    assert Affinity.from_dict(affinity.to_dict()) == affinity
    assert hash(Affinity.from_dict(affinity.to_dict())) == hash(affinity)


@pytest.mark.parametrize("key", "xyz")
@pytest.mark.parametrize("pair", [("In", "NotIn"), ("Exists", "DoesNotExist")])
def test_opposites(key: str, pair: tuple[str, str]) -> None:
    """Of two opposite operators exactly one admits a node."""
    values = ("1", "2") if pair[0] == "In" else ()
    for labels in ({}, {key: "1"}, {key: "3"}):
        assert where(key, pair[0], *values).matches(labels) != where(key, pair[1], *values).matches(labels)


def test_absent_affinity_admits_every_node() -> None:
    """A volume without affinity, or without its required part, admits every node."""
    assert allows(None, BARE)
    assert allows({}, BARE)
    assert allows({"required": None}, BARE)
    assert not allows({"required": {}}, BARE)
    assert allows(in_zone("zone-a").to_dict(), NODE_1)
    assert not allows(in_zone("zone-a").to_dict(), BARE)


def test_json_is_what_the_server_stores() -> None:
    """The JSON form has the server's shape: nothing empty in it."""
    assert on_disk("gen1").to_dict() == {
        "required": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": disk_key("gen1"), "operator": "In", "values": ["available"]}]}
            ]
        }
    }
    assert where(ZONE, "Exists").to_dict()["required"]["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": ZONE, "operator": "Exists"}
    ]
    assert NOTHING.to_dict() == {"required": {"nodeSelectorTerms": [{}]}}


def test_joining_many_terms_is_refused() -> None:
    """Affinities of several terms cannot be joined by &, which would have to guess."""
    with pytest.raises(ValueError, match="one term"):
        _ = (in_zone("a") | in_zone("b")) & in_region("r")


@pytest.mark.parametrize("beta", sorted(BETA_TO_GA))
def test_beta_and_ga_keys(beta: str) -> None:
    """Each of the five beta keys becomes its GA key, and back."""
    old, new = where(beta, "In", "x"), where(BETA_TO_GA[beta], "In", "x")
    assert with_ga_keys(old) == new == with_ga_keys(new)
    assert with_beta_keys(new) == old


def test_text() -> None:
    """An affinity reads as a sentence."""
    text = str((in_zone("a") & where("gpu", "Exists")) | NOTHING)
    assert text == "topology.kubernetes.io/zone In [a] and gpu Exists or nothing"
