"""Flags set over others for one run."""

import pytest

from pvaffinity.errors import UserError
from pvaffinity.flags import COMPONENTS, check_component, with_flags

COMMAND = ["kube-apiserver", "--secure-port=6443", "--feature-gates=A=true,B=false", "--v=2"]


@pytest.mark.parametrize(
    "flags,wanted",
    [
        ({}, COMMAND),
        ({"v": "4"}, [*COMMAND[:3], "--v=4"]),
        ({"v": None}, COMMAND[:3]),
        ({"profiling": "false"}, [*COMMAND, "--profiling=false"]),
        ({"absent": None}, COMMAND),
        ({"feature-gates": "B=true"}, [*COMMAND[:2], "--v=2", "--feature-gates=A=true,B=true"]),
        ({"feature-gates": "C=true"}, [*COMMAND[:2], "--v=2", "--feature-gates=A=true,B=false,C=true"]),
        ({"feature-gates": None}, [*COMMAND[:2], "--v=2"]),
        ({"feature-gates": "nonsense"}, [*COMMAND[:2], "--v=2", "--feature-gates=A=true,B=false,nonsense"]),
    ],
    ids=["none", "other-value", "taken-away", "added", "absent", "same-gate", "new-gate", "no-gates", "no-pair"],
)
def test_flags_replace_those_of_their_name_and_gates_are_merged_one_by_one(flags, wanted):
    """What is not named stays as it was, also every gate that is not named."""
    assert with_flags(COMMAND, flags) == wanted


def test_gates_given_twice_are_all_kept():
    """A configuration may repeat the flag, as a component allows."""
    twice = ["kube-scheduler", "--feature-gates=A=true", "--feature-gates=B=true"]
    assert with_flags(twice, {"feature-gates": "C=true"}) == ["kube-scheduler", "--feature-gates=A=true,B=true,C=true"]


@pytest.mark.parametrize("name", ["--v", "-v", "v=2", ""])
def test_a_flag_is_named_without_dashes(name):
    """What would make another command line than was meant is refused."""
    with pytest.raises(UserError, match="no flag's name"):
        with_flags(COMMAND, {name: "1"})


def test_a_component_is_known_by_its_name():
    """Another name is refused with the closest one that is known."""
    for component in COMPONENTS:
        check_component(component)
    with pytest.raises(UserError, match="did you mean kube-scheduler") as caught:
        check_component("kube-schedulr")
    assert "kube-apiserver" in caught.value.fix
