"""In what the front ends over HTTP differ, where they carry the same requests and responses."""

from dataclasses import dataclass

from halimede.frontends.http.answers import RespondError, respond_error
from halimede.frontends.http.codec.response import Label, label_binary
from halimede.http1.head import JsonLength, json_length


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one front end writes what the others write too.

    Attributes:
        json_length: what the headers of a request say of the JSON that its body begins with.
        label: how a response that begins with so many bytes of JSON is labelled.
        compression: bodies may be compressed; otherwise they are taken and given as they are.
        respond_error: how an error is told.
    """

    json_length: JsonLength
    label: Label
    compression: bool
    respond_error: RespondError


KSERVE = Dialect(json_length, label_binary, compression=True, respond_error=respond_error)
"""As the KServe protocol says."""
