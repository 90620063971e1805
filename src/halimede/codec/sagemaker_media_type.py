"""The media type of tensors as bytes, which also says how many bytes of JSON come before them."""

from typing import Final

from halimede.codec.binary_media_type import BinaryMediaType

BINARY: Final = "application/vnd.sagemaker-triton.binary+json;json-header-size="
"""What the number of bytes follows."""

_MEDIA_TYPE: Final = BinaryMediaType(BINARY)

json_length: Final = _MEDIA_TYPE.json_length
"""Where the JSON ends that a request's body begins with."""

read_length: Final = _MEDIA_TYPE.read_length
"""The same, of a Content-Type."""


def label(json_bytes: int) -> tuple[str, tuple[()]]:
    """The label of a response with tensors as bytes after so many bytes of JSON."""
    return f"{BINARY}{json_bytes}", ()
