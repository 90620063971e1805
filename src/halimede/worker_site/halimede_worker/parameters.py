"""The parameters that a model gives its requests to other models and its responses."""

import json
from typing import Any

from .errors import TritonModelException


def parameters_json(parameters: Any) -> str:
    """The parameters as JSON, "" if there are none.

    Args:
        parameters: a dict of texts, whole numbers and truth values, or None.

    Raises:
        TritonModelException: they are something else.
    """
    if parameters is None:
        return ""
    if not isinstance(parameters, dict):
        # the original shows the mangled name of its own type
        raise TritonModelException(f"Expect N8pybind114dictE, got {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if not isinstance(value, (bool, int, str)):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type {type(value)}"
            )
    if not parameters:
        return ""
    text = json.dumps(parameters, ensure_ascii=False)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeError as error:
            raise TritonModelException(f"Expect parameters to be valid Unicode: {error}") from None
    return text
