"""What models made for vLLM take from here."""

import uuid


def random_uuid() -> str:
    """Another one each time."""
    return uuid.uuid4().hex
