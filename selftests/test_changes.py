"""The fixtures around an update: a pod that is gone, and one on a node that nobody knew of."""

from types import SimpleNamespace

import pytest

from fixtures import changes
from pvaffinity.errors import ApiError
from pvaffinity.judging import NotJudgedError
from pvaffinity.manifests import on_one_of
from selftests.watched import POD


def gone():
    raise ApiError(404, "NotFound", "no such pod")


def touch(*conditions):
    """The fixture, where the timeline has last seen these conditions of the pod."""
    line = SimpleNamespace(last=lambda _: {"status": {"phase": "Running", "conditions": [*conditions]}})
    changes.touch._get_wrapped_function()(line)(SimpleNamespace(ref=POD, touch=gone))


def test_a_pod_that_was_evicted_is_not_judged_and_one_that_is_gone_is():
    """A drained node deletes the pod; so does a kubelet that must not, and that is an answer."""
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}
    with pytest.raises(NotJudgedError, match="Pod ns/reader is gone: EvictionByEvictionAPI: drained"):
        touch(evicted)
    with pytest.raises(ApiError):
        touch()


def test_the_pod_beside_it_goes_to_its_node_whenever_that_joined():
    """No list of nodes is asked, which may be older than the node."""
    made = []
    see = changes.unaffected._get_wrapped_function()(
        lambda _: None, lambda **spec: made.append(spec), lambda *_: None, lambda *_, **__: None
    )
    see(SimpleNamespace(ref=POD), {"metadata": {"uid": "u"}, "spec": {"nodeName": "new"}})
    assert made == [{"affinity": on_one_of(["new"])}]
