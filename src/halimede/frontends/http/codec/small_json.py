"""The JSON of requests that have neither tensors nor files nor texts, and so are small."""

from typing import Any

from halimede.codec.json_text import parse_document
from halimede.core.errors import InvalidArgumentError
from halimede.core.tensors import Buffer
from halimede.frontends.http.codec.request import too_large
from halimede.frontends.request_bounds import MAX_SMALL_BYTES


def parse_small(body: Buffer, max_input_size: int) -> Any:
    """What the body says.

    Args:
        body: the whole body.
        max_input_size: the most bytes of any JSON (`--http-max-input-size`).

    Raises:
        InvalidArgumentError: it is not JSON, or is larger than such a request may be.
    """
    if len(body) > max_input_size:
        raise too_large(len(body), max_input_size)
    if len(body) > MAX_SMALL_BYTES:
        msg = f"the JSON of the request has {len(body)} bytes, and the maximum for this call is {MAX_SMALL_BYTES}"
        raise InvalidArgumentError(msg)
    return parse_document(body)
