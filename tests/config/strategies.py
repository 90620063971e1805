"""Arbitrary configurations, drawn along the schema."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from halimede.config.model_config_pb2 import ModelConfig

RANGES = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any configuration, sensible or not."""
    config = ModelConfig()
    fill(draw, config, 1.0)
    return config


def fill(draw: st.DrawFn, message: Message, share: float) -> None:
    """Set some fields; the share of them shrinks with depth."""
    names = [field.name for field in message.DESCRIPTOR.fields]
    chosen = (
        draw(st.lists(st.sampled_from(names), max_size=max(1, int(4 * share)), unique=True)) if names else []
    )
    for name in chosen:
        field: Any = message.DESCRIPTOR.fields_by_name[name]
        target = getattr(message, name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key_field, entry = (field.message_type.fields_by_name[part] for part in ("key", "value"))
            for _ in range(draw(st.integers(1, 2))):
                key = draw(scalars(key_field))
                if entry.message_type is not None:
                    fill(draw, target[key], share / 2)
                else:
                    target[key] = draw(scalars(entry))
        elif field.is_repeated:
            for _ in range(draw(st.integers(1, 2))):
                if field.message_type is not None:
                    fill(draw, target.add(), share / 2)
                else:
                    target.append(draw(scalars(field)))
        elif field.message_type is not None:
            target.SetInParent()
            fill(draw, target, share / 2)
        else:
            setattr(message, name, draw(scalars(field)))


def scalars(field: Any) -> st.SearchStrategy[Any]:
    """Values of a field that is no message."""
    if field.enum_type is not None:
        return st.sampled_from(sorted(field.enum_type.values_by_number))
    if field.type in RANGES:
        return st.integers(*RANGES[field.type])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.text(max_size=5)
    return st.floats(allow_nan=False, width=32 if field.type == FieldDescriptor.TYPE_FLOAT else 64)
