"""Adapters of a model."""

from dataclasses import dataclass


@dataclass
class LoRARequest:
    """One of them."""

    lora_name: str
    lora_int_id: int
    lora_path: str
