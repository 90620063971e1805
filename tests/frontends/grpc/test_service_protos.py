"""Our messages against those that the clients ship, each in its own process: one cannot hold both sets of names."""

import json
import subprocess
import sys
import textwrap
from typing import Any

SCRIPT = textwrap.dedent(
    """
    import importlib, json, sys
    module = importlib.import_module(sys.argv[1])
    package = module.DESCRIPTOR.package
    def type_of(field):
        for kind in (field.message_type, field.enum_type):
            if kind is not None:
                name = kind.full_name
                return name.split("ModelConfig")[-1] if name.endswith(".ModelConfig") else name.removeprefix(package)
        return field.type
    def message(descriptor):
        return {
            "fields": {
                field.name: [
                    field.number,
                    type_of(field),
                    field.is_repeated,
                    field.containing_oneof.name if field.containing_oneof else None,
                ]
                for field in descriptor.fields
            },
            "map": descriptor.GetOptions().map_entry,
            "nested": {nested.name: message(nested) for nested in descriptor.nested_types},
        }
    service = module.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    print(json.dumps({
        "messages": {name: message(kind) for name, kind in module.DESCRIPTOR.message_types_by_name.items()},
        "methods": {
            method.name: [
                method.input_type.name, method.output_type.name, method.client_streaming, method.server_streaming
            ]
            for method in service.methods
        },
    }))
    """
)


def described(module: str) -> dict[str, Any]:
    output = subprocess.check_output([sys.executable, "-c", SCRIPT, module], text=True, timeout=60)
    result: dict[str, Any] = json.loads(output)
    return result


def test_names_and_numbers_are_those_that_the_client_ships() -> None:
    ours = described("halimede.frontends.grpc.kserve_pb2")
    theirs = described("tritonclient.grpc.service_pb2")

    assert ours["methods"] == theirs["methods"]
    assert ours["messages"].keys() == theirs["messages"].keys()
    for name, message in theirs["messages"].items():
        assert ours["messages"][name] == message, name
