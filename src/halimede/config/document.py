"""A configuration as the JSON document that clients read."""

from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from halimede.config.model_config_pb2 import ModelConfig

_PACKAGE = f"{ModelConfig.DESCRIPTOR.file.package}."
_AS_TEXT = frozenset(
    {
        "ModelInstanceGroup.SecondaryDevice.device_id",
        "ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
    }
)
"""64-bit integers that Triton writes as JSON strings, as protobuf does; it writes all others as numbers."""


def config_document(config: ModelConfig) -> dict[str, Any]:
    """The configuration as a JSON object.

    Fields stand in the schema's order under their snake_case names. Numbers and strings are there even where
    they have their default, lists and maps even where they are empty; messages that are unset, and the unset
    members of a choice, are left out. 64-bit integers are numbers, except for two rarely used
    fields; the keys of maps are strings.
    """
    return _document(config)


def _document(message: Message) -> dict[str, Any]:
    document: dict[str, Any] = {}
    field: Any  # a descriptor, whose class depends on how protobuf is built
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            document[field.name] = {str(key): _value(value[key], entry) for key in sorted(value)}
        elif field.is_repeated:
            document[field.name] = [_value(item, field) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            document[field.name] = _value(value, field)
    return document


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _document(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.full_name.removeprefix(_PACKAGE) in _AS_TEXT:
        return str(value)
    if isinstance(value, float):
        if not np.isfinite(value):  # JSON has no number for it; protobuf's JSON form says these words
            return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if field.type == FieldDescriptor.TYPE_FLOAT:
            return float(str(np.float32(value)))  # 0.1 rather than 0.10000000149011612
    return value
