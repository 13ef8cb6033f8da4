"""Kubernetes releases: how they are named, found and refused."""

import pytest

from pvaffinity.errors import UserError
from pvaffinity.versions import load_versions


@pytest.mark.parametrize("wanted", ["1.35", "v1.35", "1.35.4", " 1.35 "])
def test_a_release_is_found_by_minor_or_whole_version(wanted):
    """1.35, v1.35 and 1.35.4 name the same release."""
    assert load_versions().find(wanted).version == "1.35.4"


def test_another_patch_release_of_a_known_minor_is_taken_as_it_is():
    """A patch release that the table does not pin is used as given, with its minor's facts."""
    release = load_versions().find("1.34.2")
    assert (release.version, release.minor, release.has_gate) == ("1.34.2", "1.34", False)


@pytest.mark.parametrize("wanted", ["1.3", "1.99", "latest", "1.35.x", "", "1.35.4; rm -rf /"])
def test_an_unknown_version_is_refused_with_the_known_ones(wanted):
    """Whatever is no release is refused, and the known ones are named."""
    with pytest.raises(UserError) as caught:
        load_versions().find(wanted)
    assert "1.34, 1.35, 1.36, 1.37" in caught.value.fix


@pytest.mark.parametrize(
    "wanted,close", [("1.35.x", "1.35"), ("137", "1.37"), ("nxt", "next"), ("1.33", ""), ("1.3", "")]
)
def test_only_what_is_listed_is_suggested(wanted, close):
    """A slip of the pen is answered with a name of the list; a version that is not known is not, none being closer."""
    with pytest.raises(UserError) as caught:
        load_versions().find(wanted)
    assert caught.value.what == f"unknown Kubernetes version {wanted!r}" + (f"; did you mean {close}?" if close else "")
    assert "next (1.38)" in caught.value.fix


def test_the_advice_offers_all_only_where_it_is_taken():
    """One cluster cannot be of every release; who takes ``all`` says so."""
    with pytest.raises(UserError) as caught:
        load_versions().find("all")
    assert "all" not in caught.value.fix
    with pytest.raises(UserError, match="did you mean all") as caught:
        load_versions().find("al", besides=("all",))
    assert "next (1.38), all, or a patch release" in caught.value.fix


def test_the_newest_release_is_no_pre_release():
    """The default never is a pre-release."""
    versions = load_versions()
    assert "-" not in versions.newest.version
    assert versions.next is not None
    assert versions.newest < versions.next


@pytest.mark.parametrize(
    "text",
    ["release = [", "release = 3", "release = ['a']", "etcd = 1\nrelease = [{minor = 1, version = 2, gate = 3}]"],
)
def test_a_broken_table_is_a_user_error(tmp_path, text):
    """A versions.toml that is no TOML, or no table of releases, is one clear line, not a stack trace."""
    path = tmp_path / "versions.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"versions\.toml cannot be used"):
        load_versions(path)


@pytest.mark.parametrize("wanted", ["1.38.0-alpha.0.12+abcdef", "v1.38.0-rc.1", "1.38.0-beta.0.3+0a1b-dirty"])
def test_a_version_between_releases_is_taken_as_it_is(wanted):
    """What a build of any commit calls itself is a version of its minor release."""
    found = load_versions().find(wanted)
    assert (found.minor, found.version) == ("1.38", wanted.removeprefix("v"))
    assert found.key[:3] == (1, 38, 0)
