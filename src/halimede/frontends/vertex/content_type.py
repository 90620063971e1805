"""How bodies with tensors as bytes are labelled: requests by a media type of Vertex AI, responses as in KServe."""

from typing import Final

from halimede.codec.binary_media_type import BinaryMediaType
from halimede.frontends.http.answers import respond_error
from halimede.frontends.http.codec.response import label_binary
from halimede.frontends.http.dialect import Dialect

BINARY: Final = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
"""What the number of bytes of JSON follows."""

json_length: Final = BinaryMediaType(BINARY).json_length
"""Where the JSON ends that a request's body begins with."""

DIALECT: Final = Dialect(json_length, label_binary, compression=False, respond_error=respond_error)
