"""What is generated from ``proto/`` and checked in is what the sources say now."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet

from agentrund.v1 import control_pb2, control_pb2_grpc

PROTO = Path(__file__).parents[2] / "proto"
SOURCE = "agentrund/v1/control.proto"


def forget_json_names(messages: Iterable[DescriptorProto]) -> None:
    """Compilers differ in whether they state them."""
    for message in messages:
        forget_json_names(message.nested_type)
        for field in message.field:
            field.ClearField("json_name")


def test_the_control_service_is_generated_from_its_source(tmp_path):
    out = tmp_path / "control.bin"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--descriptor_set_out={out}", SOURCE]
    subprocess.run(command, check=True, timeout=60)
    (source,) = FileDescriptorSet.FromString(out.read_bytes()).file
    generated = FileDescriptorProto()
    control_pb2.DESCRIPTOR.CopyToProto(generated)
    for file in (source, generated):
        forget_json_names(file.message_type)
    assert generated == source, "make proto"
    methods = {method.name for method in source.service[0].method}
    assert methods == {name for name in vars(control_pb2_grpc.ControlServicer) if name[0].isupper()}
