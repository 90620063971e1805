"""Small helpers of models: tensors and their configuration by name."""

from typing import Any, Dict, Iterable, Optional

from .requests import InferenceRequest
from .responses import InferenceResponse
from .tensors.tensors import Tensor


def get_input_tensor_by_name(inference_request: Any, name: str) -> Optional[Tensor]:
    """The first input of that name, None if the request has none."""
    if not isinstance(inference_request, InferenceRequest):  # a test's stand-in
        return _tensor_named(inference_request.inputs(), name)
    for tensor in inference_request._tensors():
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Optional[Tensor]:
    """The first output of that name, None if the response has none."""
    return _tensor_named(inference_response.output_tensors(), name)


def _tensor_named(tensors: Iterable[Tensor], name: str) -> Optional[Tensor]:
    return next((tensor for tensor in tensors if tensor.name() == name), None)


def get_input_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The configuration of the input of that name, None if there is none."""
    return _named(model_config, "input", name)


def get_output_config_by_name(model_config: Dict[str, Any], name: str) -> Optional[Dict[str, Any]]:
    """The configuration of the output of that name, None if there is none."""
    return _named(model_config, "output", name)


def _named(model_config: Dict[str, Any], side: str, name: str) -> Optional[Dict[str, Any]]:
    if side in model_config:
        for entry in model_config[side]:
            if entry["name"] == name:
                found: Dict[str, Any] = entry
                return found
    return None


def using_decoupled_model_transaction_policy(model_config: Dict[str, Any]) -> Any:
    """Whether the model may send any number of responses to a request.

    Raises:
        KeyError: the transaction policy does not say so.
    """
    if "model_transaction_policy" in model_config:
        return model_config["model_transaction_policy"]["decoupled"]
    return False
