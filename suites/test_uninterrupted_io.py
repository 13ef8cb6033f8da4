"""Uninterrupted I/O: a container writes to its volume many times a second, whatever is done to the affinity.

The volume is a directory of the node, so that a second pod finds the data on the same node only.
"""

import pytest

from pvaffinity.affinity import in_region, in_zone, on_disk
from pvaffinity.conditions import is_affected_since, is_scheduled_for
from pvaffinity.heartbeat import damage

pytestmark = [
    pytest.mark.behaviour("io"),
    pytest.mark.cluster("gate-on"),
    pytest.mark.requires("container-io", "kubectl"),
]

CHANGES = {
    "relaxed": lambda p: (in_zone(p.home), in_region(p.region)),
    "swapped": lambda p: (on_disk(p.gen1), on_disk(p.gen2)),
    "tightened away": lambda p: (in_zone(p.home), in_zone(p.other)),
}


@pytest.fixture
def undisturbed(cluster, heartbeat, move, touch, pod, until, never):
    """Change the affinity of a volume that is being written to, and see the same container write on."""

    def see(before, after, **more):
        heart = heartbeat(before, **more)
        alive, written = heart.pod.read(), heart.read(least=20)

        move(heart.volume, after)

        acknowledged = heart.newest()
        touch(heart.pod)
        allowed = cluster.running_on(*cluster.topology.matching(after))
        until(pod(heart.volume), is_scheduled_for(allowed))  # the scheduler has worked with the new affinity
        never(heart.pod, is_affected_since(alive), during=3)
        assert heart.judge(since=acknowledged).startswith(written)
        return heart

    return see


@pytest.mark.parametrize("what", CHANGES)
def test_a_running_container_writes_on(undisturbed, move, places, what):
    """No beat is lost or late over the update, not even on a node the volume has lost, and all data stays readable.

    It is read by the same container and, once the node is allowed again, by a second pod.
    """
    before, after = CHANGES[what](places)
    heart = undisturbed(before, after)

    move(heart.volume, before | after)

    written = heart.read()
    assert heart.reread().startswith(written)


def test_a_running_container_writes_on_when_the_affinity_is_cleared(undisturbed, places):
    """A volume whose affinity is removed goes on being written to, and a second pod beside the first reads the data."""
    heart = undisturbed(in_zone(places.home), None, source="hostPath")

    written = heart.read()
    assert heart.reread().startswith(written)


def test_data_is_there_when_the_volume_is_mounted_anew(heartbeat, move, places):
    """What was written before the update is read back, line by line, by a pod that mounts the volume after it."""
    heart = heartbeat(in_zone(places.home))
    written = heart.read(least=20)
    heart.stop()

    move(heart.volume, in_region(places.region))

    found = heart.reread()
    assert found.startswith(written)
    assert not damage(found)
