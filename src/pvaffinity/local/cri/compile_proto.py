"""Writes ``cri_pb2.py`` and ``cri_pb2.pyi`` from ``cri.proto``; for developers, needs grpcio-tools.

protoc's own Python output is tied to the protobuf release that made it. Committed here is the compiled descriptor
instead, loaded through protobuf's public API (``descriptor_pool``, ``message_factory``): it serves every release that
the project admits and keeps the messages in a pool of their own. The type stub is protoc's.

    python -m pvaffinity.local.cri.compile_proto
"""

from __future__ import annotations

__all__ = ["compile_descriptor", "main"]

import importlib.resources
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2

_HERE = Path(__file__).parent
_TEMPLATE = '''"""Messages of cri.proto. Written by compile_proto.py: do not edit."""

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(
    {literal}
)
DESCRIPTOR = _POOL.FindFileByName("cri.proto")
for _class in message_factory.GetMessageClassesForFiles([DESCRIPTOR.name], _POOL).values():
    globals()[_class.DESCRIPTOR.name] = _class
for _enum in DESCRIPTOR.enum_types_by_name.values():
    globals()[_enum.name] = enum_type_wrapper.EnumTypeWrapper(_enum)
    globals().update((_value.name, _value.number) for _value in _enum.values)
'''


def compile_descriptor(out: Path) -> descriptor_pb2.FileDescriptorProto:
    """Compile ``cri.proto`` with grpcio-tools; ``cri_pb2.pyi`` is left in the directory ``out``.

    Raises:
        ImportError: grpcio-tools is not installed.
        RuntimeError: protoc refused the file; it has said why on stderr.
    """
    from grpc_tools import protoc  # type: ignore[import-untyped]  # for developers only

    well_known = importlib.resources.files("grpc_tools") / "_proto"
    descriptor_file = out / "cri.binpb"
    arguments = [f"-I{_HERE}", f"-I{well_known}", f"--pyi_out={out}", f"--descriptor_set_out={descriptor_file}"]
    if protoc.main(["protoc", *arguments, "cri.proto"]):
        raise RuntimeError("protoc refused cri.proto")
    (descriptor,) = descriptor_pb2.FileDescriptorSet.FromString(descriptor_file.read_bytes()).file
    descriptor.ClearField("source_code_info")
    return descriptor


def main() -> None:
    """Write both files beside ``cri.proto``."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        data = compile_descriptor(out).SerializeToString(deterministic=True)
        pieces = "\n    ".join(repr(data[start : start + 60]) for start in range(0, len(data), 60))
        (_HERE / "cri_pb2.py").write_text(_TEMPLATE.replace("{literal}", pieces), encoding="utf-8")
        (_HERE / "cri_pb2.pyi").write_text((out / "cri_pb2.pyi").read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main()
