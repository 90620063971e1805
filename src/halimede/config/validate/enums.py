"""Values of enumerations: the text and JSON forms allow any number, but only listed ones mean something."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.problem import Problem


def enum_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of enumeration values."""
    yield from _message(config, config, "")


def _message(config: ModelConfig, message: Message, prefix: str) -> Iterator[Problem]:
    field: Any  # a descriptor, whose class depends on how protobuf is built
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            for key in sorted(value):
                shown = f'"{key}"' if isinstance(key, str) else str(key)
                yield from _value(config, value[key], entry, f"{path}[{shown}]")
        elif field.is_repeated:
            for index, item in enumerate(value):
                yield from _value(config, item, field, f"{path}[{index}]")
        else:
            yield from _value(config, value, field, path)


def _value(config: ModelConfig, value: Any, field: Any, path: str) -> Iterator[Problem]:
    if field.message_type is not None:
        yield from _message(config, value, f"{path}.")
    elif field.enum_type is not None and value not in field.enum_type.values_by_number:
        names = ", ".join(field.enum_type.values_by_name)
        message = f"'{field.name}' must be one of {names}, not {value}"
        yield Problem(config.name, path, message, f"{field.name}: {field.enum_type.values[0].name}")
