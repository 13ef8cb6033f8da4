"""The catalogue of mutants: what it may say, what is taken from it, and that its texts fit."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pvaffinity.errors import UserError
from pvaffinity.mutants.catalogue import COMPONENTS, Mutant, chosen, load, sample
from pvaffinity.versions import load_versions

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = load(ROOT / "mutants")
VERSION = load_versions().newest.version
ENTRY = """
[[mutant]]
name = "one"
does = "does it"
file = "k8s.io/kubernetes/pkg/a.go"
find = "true"
put = "false"
breaks = ["race"]
"""


@pytest.fixture
def written(tmp_path: Path):
    """Writes a catalogue in which one component's file says this, and reads it."""

    def write(text: str) -> tuple[Mutant, ...]:
        for component in COMPONENTS:
            (tmp_path / f"{component}.toml").write_text("")
        (tmp_path / "kubelet.toml").write_text(text)
        return load(tmp_path)

    return write


def test_there_are_enough_of_every_kind() -> None:
    """At least 24 breaks that must be seen, over all components, and six harmless changes."""
    seen = [mutant for mutant in CATALOGUE if mutant.breaks and not mutant.survives]
    assert len(seen) >= 24
    assert {mutant.component for mutant in seen} == set(COMPONENTS)
    assert sum(mutant.harmless for mutant in CATALOGUE) >= 6


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_every_text_fits_the_newest_release(mutant: Mutant) -> None:
    """The text to find stands exactly once in the file of the release, where Go has its sources."""
    version = f"v{VERSION}" if mutant.module == "k8s.io/kubernetes" else "v0." + VERSION.split(".", 1)[1]
    assert mutant.applied(_source(mutant.module, version, mutant.inside), VERSION)


def _source(module: str, version: str, inside: str) -> str:
    try:
        cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
        return (Path(cache) / f"{module}@{version}" / inside).read_text()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"the sources of {module} {version} are not in Go's module cache")


def test_a_text_that_does_not_fit_is_an_error_that_names_mutant_file_and_release(written) -> None:
    """Neither a text that is gone nor one that stands twice is passed over."""
    (mutant,) = written(ENTRY)
    assert mutant.applied("if true {", "1.37.2") == "if false {"
    for text, count in (("", 0), ("true true", 2)):
        with pytest.raises(UserError) as caught:
            mutant.applied(text, "1.37.2")
        assert caught.value.what == (
            f"mutant one does not fit Kubernetes 1.37.2: its text stands {count} times in "
            "k8s.io/kubernetes/pkg/a.go, not once"
        )


@pytest.mark.parametrize(
    "text, told",
    [
        (ENTRY.replace('"race"', '"rase"'), "one: unknown behaviour 'rase'; did you mean race?"),
        (ENTRY.replace('breaks = ["race"]', ""), "one must either break a promise (breaks) or be harmless"),
        (ENTRY + "harmless = true\n", "one must either break a promise (breaks) or be harmless"),
        (ENTRY.replace('"false"', '"true"'), "one changes nothing"),
        (ENTRY + ENTRY, "there are two mutants one"),
        (ENTRY + "colour = 'red'\n", "[0].colour is unknown"),
        (ENTRY.replace("find", "seek"), "[0].find is missing"),
        ("[mutants]\n", "mutants is unknown"),
        ("[[mutant]\n", "Expected ']]'"),
    ],
)
def test_what_cannot_be_is_told(written, text: str, told: str) -> None:
    """A catalogue that contradicts itself, or has a word too many, is refused in one line."""
    with pytest.raises(UserError) as caught:
        written(text)
    assert told in caught.value.what


def test_a_misspelt_name_is_answered_with_the_one_that_was_meant() -> None:
    """``--only`` takes names and components, and offers the closest where there is none."""
    assert chosen(CATALOGUE, ["kubelet"]) == tuple(m for m in CATALOGUE if m.component == "kubelet")
    assert [m.name for m in chosen(CATALOGUE, ["kubelet-no-check"])] == ["kubelet-no-check"]
    with pytest.raises(UserError, match="'kubelet-no-chek'; did you mean kubelet-no-check"):
        chosen(CATALOGUE, ["kubelet-no-chek"])


def test_a_sample_spans_all_components_and_has_a_harmless_one() -> None:
    """Six of them are always the same: a break of each component, one more, and a harmless change."""
    six = sample(CATALOGUE, 6)
    assert six == sample(CATALOGUE, 6)
    assert {m.component for m in six if not m.harmless} == set(COMPONENTS)
    assert sum(m.harmless for m in six) == 1
    assert len(set(sample(CATALOGUE, 1000))) == len(CATALOGUE)


def test_a_binary_is_remembered_by_what_makes_it() -> None:
    """Another text, file, component or release is another binary; another promise or selection is the same."""
    mutant = CATALOGUE[0]
    others = [
        replace(mutant, find="x"),
        replace(mutant, put="x"),
        replace(mutant, file="x"),
        replace(mutant, component="x"),
    ]
    keys = {mutant.key("1.37.2"), mutant.key("1.36.3"), *(other.key("1.37.2") for other in others)}
    assert len(keys) == 6
    assert replace(mutant, name="x", breaks=("io",), checks="x", does="x").key("1.37.2") == mutant.key("1.37.2")
