"""Judging heartbeats: what is lost, late or damaged is found, and a machine that stood still is told apart."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from pvaffinity import heartbeat
from pvaffinity.budgets import BUDGETS
from pvaffinity.heartbeat import Beat, damage, judge, parse
from pvaffinity.manifests import SHELL_IMAGE
from pvaffinity.nodeimage.recipe import load_recipe

LIMIT = BUDGETS["heartbeat"].seconds


def beats(*, begin: float = 100.0, count: int = 200, pauses: dict[int, float] | None = None) -> str:
    """A file of beats every 50 ms; before some of them, by number, a longer pause."""
    lines, at = [], begin
    for number in range(1, count + 1):
        at += (pauses or {}).get(number, 0.05)
        lines.append(f"{number} {at:.2f}\n")
    return "".join(lines)


CONTROL = beats(begin=99, count=218)


def test_regular_beats_are_unbroken():
    """Beats without a hole, and enough of them after the update, are a pass that gives its numbers."""
    finding = judge(beats(), CONTROL, since=100, least=40)
    assert finding.verdict == "unbroken"
    assert "100 of them since the update; longest interval 0.05 s" in finding.why


def test_a_pause_that_only_the_volume_had_is_broken():
    """A writer that stood still while its control went on is a finding, however complete its file is."""
    finding = judge(beats(pauses={120: LIMIT + 0.1}), CONTROL, since=100, least=40)
    assert finding.verdict == "broken"
    assert "the control's went on all the time" in finding.why


def test_a_pause_below_the_budget_is_none():
    """What the budget allows is no gap."""
    assert judge(beats(pauses={120: LIMIT - 0.1}), CONTROL, since=100, least=40).verdict == "unbroken"


def test_a_pause_of_both_is_not_judged():
    """Where the control stood still at the same time, the machine did: neither a pass nor a failure."""
    control = beats(begin=99, count=218, pauses={140: LIMIT + 0.2})
    finding = judge(beats(pauses={120: LIMIT + 0.2}), control, since=100, least=40)
    assert finding.verdict == "not judged"
    assert "the machine stood still for 1.20 of 1.20 s" in finding.why


def test_a_short_pause_of_the_control_excuses_no_long_one():
    """A writer that was silent for 30 s is not excused by a machine that stood still for a part of a second of them."""
    control = beats(begin=99, count=900, pauses={300: 0.66})
    finding = judge(beats(count=300, pauses={120: 30.0}), control, since=100, least=40)
    assert finding.verdict == "broken"
    assert "no beat for 30.00 s; the control's went on 29.34 s of them" in finding.why


def test_what_is_left_of_a_pause_is_held_against_the_budget():
    """A machine that stood still for half a pause excuses it if the rest is within the budget."""
    control = beats(begin=99, count=220, pauses={142: 0.66})
    assert judge(beats(pauses={120: LIMIT + 0.3}), control, since=100, least=40).verdict == "not judged"
    assert judge(beats(pauses={120: LIMIT + 0.9}), control, since=100, least=40).verdict == "broken"


def test_a_pause_of_the_control_excuses_only_the_time_it_lay_in():
    """A long pause of the control that covers only the beginning of the writer's excuses no more than that."""
    control = beats(begin=99, count=150, pauses={100: 2.0})  # from 103.95 to 105.95
    finding = judge(beats(count=100, begin=99.0, pauses={98: 4.0}), control, since=50, least=40)  # from 103.85
    assert finding.verdict == "broken"
    assert "no beat for 4.00 s" in finding.why


def test_beats_that_are_gone_are_broken():
    """A file that has fewer beats than it once had lost data, whatever the control did."""
    assert judge("", CONTROL, since=150, least=40).verdict == "broken"
    finding = judge(beats(count=120), beats(begin=99, count=130), since=150, least=40)
    assert finding.verdict == "broken"
    assert "only 120 beats are left of 150" in finding.why


def test_no_beats_beside_a_control_that_beats_are_broken():
    """A writer that never began while its control went on is a finding; without a living control it is none."""
    assert judge("", CONTROL, since=0, least=40).verdict == "broken"
    assert judge("", beats(count=1), since=0, least=40).verdict == "not judged"
    assert judge("", beats(count=4, pauses={2: 9.0, 3: 9.0, 4: 9.0}), since=0, least=40).verdict == "not judged"


def test_too_few_beats_while_the_control_wrote_enough_are_broken():
    """Writing at a tenth of the control's pace without any one gap is a finding."""
    slow = dict.fromkeys(range(101, 111), 0.5)
    finding = judge(beats(count=110, pauses=slow), CONTROL, since=100, least=40)
    assert finding.verdict == "broken"
    assert "only 10 of 40 beats since the update, of the control" in finding.why


def test_a_pause_of_the_control_elsewhere_excuses_nothing():
    """A control that stood still at another time is no excuse."""
    control = beats(begin=99, count=180, pauses={40: LIMIT + 0.2})
    assert judge(beats(pauses={150: LIMIT + 0.2}), control, since=100, least=40).verdict == "broken"


def test_a_writer_that_never_goes_on_is_broken():
    """A file that ends long before its control's last beat is a gap to the end."""
    assert judge(beats(count=120), CONTROL, since=100, least=40).verdict == "broken"


def test_too_few_beats_are_not_judged():
    """Without a gap but with too few beats after the update, nothing was shown."""
    assert judge(beats(count=120), beats(begin=99, count=130), since=100, least=40).verdict == "not judged"


@pytest.mark.parametrize("control", ["", "garbage\n", "1 400.00\n2 400.05\n"])
def test_without_a_control_nothing_is_judged(control):
    """A control that has no beats, damaged ones, or only later ones cannot say that the machine went on."""
    assert judge(beats(), control, since=100, least=40).verdict == "not judged"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 5.00\n3 5.10\n", "line 2 is beat 3"),
        ("1 5.00\n2 5.05\n1 7.00\n", "line 3 is beat 1"),
        ("2 5.05\n3 5.10\n", "line 1 is beat 2"),
        ("1 5.00\n2 4.90\n", "before the one before it"),
        ("1 5.00\n2 5.0", "no beat"),
        ("1 5.00\n\x00\x00\x00\n", "no beat"),
    ],
)
def test_lost_and_damaged_lines_are_broken(text, why):
    """A hole, a writer that began anew, a missing beginning, time running backwards and rubbish are all findings."""
    with pytest.raises(ValueError, match=why):
        parse(text)
    assert damage(text)
    assert not damage(CONTROL)
    assert judge(text, CONTROL, since=0, least=0).verdict == "broken"


def test_the_container_writes_what_is_parsed(tmp_path):
    """The control makes its directories and writes beats; tail waits for them; told to end, it removes everything."""
    base = tmp_path / "base"
    made = heartbeat.control("x", "base", "a", "b")
    command, environment = made["command"], made["env"][0]
    assert command[-2:] == ["/volumes/x/base/a", "/volumes/x/base/b"]
    assert environment == {"name": "REMOVE", "value": "/volumes/x/base"}
    process = subprocess.Popen([*command[:-2], base / "a", base / "b"], env={**os.environ, "REMOVE": str(base)})
    try:
        tail = heartbeat.tail(str(base / "a" / heartbeat.FILE), 10, 60)
        found = parse(subprocess.run(tail, capture_output=True, text=True, check=True, timeout=120).stdout)
        assert (base / "b").is_dir()
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert len(found) >= 10
    assert abs(found[-1].at - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60
    assert not base.exists()


def test_a_writer_that_is_told_to_end_leaves_its_file(tmp_path):
    """The writer itself removes nothing."""
    command = heartbeat.writer("x")["command"]
    assert command[-1] == "/volumes/x"
    process = subprocess.Popen([*command[:-1], tmp_path])
    subprocess.run(heartbeat.tail(str(tmp_path / heartbeat.FILE), 2, 60), check=True, capture_output=True)
    process.terminate()
    assert process.wait(60) == 0
    assert len(parse((tmp_path / heartbeat.FILE).read_text())) >= 2


def test_tail_gives_up_and_shows_what_there_is(tmp_path):
    """Beats that do not come are waited for as long as was said; what has been written is printed all the same."""
    (tmp_path / "f").write_text("1 5.00\n")
    begun = time.monotonic()
    done = subprocess.run(heartbeat.tail(str(tmp_path / "f"), 10, 1), capture_output=True, text=True, check=True)
    assert parse(done.stdout) == (Beat(1, 5.0),)
    assert time.monotonic() - begun < 30


def test_a_file_in_the_way_ends_the_container(tmp_path):
    """A volume that cannot be written to is no silent hole: the container exits with an error."""
    (tmp_path / heartbeat.FILE).mkdir()
    command = heartbeat.writer("x")["command"]
    done = subprocess.run([*command[:-1], tmp_path], check=False, timeout=60, capture_output=True)
    assert done.returncode == 1


def test_an_image_that_cannot_be_had_is_terminal():
    """A pod whose image cannot be pulled is not waited for until the budget ends."""
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    obj = {"metadata": {"uid": "1"}, "spec": {}, "status": {"containerStatuses": [{"name": "writer", "state": state}]}}
    assert heartbeat.is_beating(obj).state == "terminal"
    assert heartbeat.is_beating(None).state == "not yet"


def test_the_image_is_in_node_images_of_our_own():
    """Where nothing can be pulled, the node image has the image of these containers under the same name."""
    assert SHELL_IMAGE in load_recipe().busybox
