"""The schema: the published names and numbers, and generated modules that are fresh."""

import json
import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

from halimede.config import model_config_pb2

ROOT = Path(__file__).parents[2]

PRINT_PUBLISHED = """
import sys
from tritonclient.grpc import model_config_pb2
sys.stdout.buffer.write(model_config_pb2.DESCRIPTOR.serialized_pb)
"""


def test_schema_has_the_published_names_numbers_types_and_labels() -> None:
    command = [sys.executable, "-c", PRINT_PUBLISHED]
    published = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    assert entries(model_config_pb2.DESCRIPTOR.serialized_pb) == entries(published)


def test_schema_and_the_clients_can_be_loaded_together() -> None:
    program = "import tritonclient.grpc, halimede.config.model_config_pb2"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)


def test_generated_modules_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate_protos.py"), "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_published_schema_is_not_empty() -> None:
    found = entries(model_config_pb2.DESCRIPTOR.serialized_pb)
    assert found["ModelConfig.backend"] == [17, "TYPE_STRING", "LABEL_OPTIONAL", "", ""]
    assert found["ModelConfig.dynamic_batching"][4] == "scheduling_choice"
    assert found["DataType.TYPE_BF16"] == [14]


def entries(serialized: bytes) -> dict[str, list[object]]:
    """Full name → number, type, label, type name and choice of each field; number of each enum value."""
    file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    found: dict[str, list[object]] = {}
    for enum in file.enum_type:
        add_enum(enum, "", found)
    for message in file.message_type:
        add_message(message, "", file.package, found)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return] # json's result is untyped


def add_enum(enum: descriptor_pb2.EnumDescriptorProto, prefix: str, found: dict[str, list[object]]) -> None:
    for value in enum.value:
        found[f"{prefix}{enum.name}.{value.name}"] = [value.number]


def add_message(
    message: descriptor_pb2.DescriptorProto, prefix: str, package: str, found: dict[str, list[object]]
) -> None:
    name = f"{prefix}{message.name}"
    found[name] = [message.options.map_entry]
    kinds = descriptor_pb2.FieldDescriptorProto
    for field in message.field:
        choice = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        type_name = field.type_name.removeprefix(f".{package}.")
        found[f"{name}.{field.name}"] = [
            field.number,
            kinds.Type.Name(field.type),
            kinds.Label.Name(field.label),
            type_name,
            choice,
        ]
    for enum in message.enum_type:
        add_enum(enum, f"{name}.", found)
    for nested in message.nested_type:
        add_message(nested, f"{name}.", package, found)
