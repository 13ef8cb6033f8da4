"""The calls of ``runtime.v1.RuntimeService`` on the runtime as a whole."""

from __future__ import annotations

__all__ = ["RUNTIME_NAME", "RuntimeService"]

from pvaffinity import __version__
from pvaffinity.local.cri import cri_pb2 as pb
from pvaffinity.local.cri.rpc import Method, Methods

RUNTIME_NAME = "pvaffinity-simulated"


class RuntimeService:
    """Version, readiness, configuration: always the same."""

    def methods(self) -> Methods:
        """The calls by name."""
        return {
            "Version": Method(pb.Empty, self.version),
            "Status": Method(pb.StatusRequest, self.status),
            "RuntimeConfig": Method(pb.Empty, self.config),
            "UpdateRuntimeConfig": Method(pb.Empty, self.update_config),
        }

    async def version(self, request: pb.Empty) -> pb.VersionResponse:
        """Shown as the node's container runtime version; the kubelet demands all four."""
        return pb.VersionResponse(
            version="0.1.0", runtime_name=RUNTIME_NAME, runtime_version=__version__, runtime_api_version="v1"
        )

    async def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        """Ready, with the features that containerd and CRI-O have."""
        features = pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=True)
        conditions = [pb.RuntimeCondition(type=kind, status=True) for kind in ("RuntimeReady", "NetworkReady")]
        return pb.StatusResponse(
            status=pb.RuntimeStatus(conditions=conditions),
            runtime_handlers=[pb.RuntimeHandler(name="", features=features)],
            features=pb.RuntimeFeatures(supplemental_groups_policy=True),
        )

    async def config(self, request: pb.Empty) -> pb.RuntimeConfigResponse:
        """The cgroup driver; Kubernetes 1.37 announces that from 1.38 on a runtime must answer this."""
        return pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=pb.CGROUPFS))

    async def update_config(self, request: pb.Empty) -> pb.Empty:
        """The node's pod CIDR, which is not used."""
        return pb.Empty()
