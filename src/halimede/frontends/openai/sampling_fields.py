"""The fields of a request that say how tokens are chosen, and which form the text has, as a model takes them."""

from typing import Any

from halimede.core.tensors import Tensor
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import SAMPLING, flag
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.profile import SAMPLING_PARAMETERS
from halimede.frontends.openai.published_fields import FORMS, asks_for_nothing
from halimede.frontends.openai.routes import Call
from halimede.frontends.openai.tensors import json_tensor, value_tensor

_STOP_SHOWN = "include_stop_str_in_output"


def read_sampling(document: dict[str, Any], known: KnownModel, call: Call) -> dict[str, Any]:
    """Field → value of those that shape the output and that the model takes.

    Raises:
        FieldError: one is wrong, or the model does not take it, and it asks for something special.
    """
    profile = known.profile
    takes_any = SAMPLING_PARAMETERS in profile.inputs
    values: dict[str, Any] = {}
    form = _form(document, call)
    for name, check in SAMPLING.items():
        sent, value = name, document.get(name)
        if name == "max_tokens" and document.get("max_completion_tokens") is not None:
            sent, value = "max_completion_tokens", document["max_completion_tokens"]
        if name == "structured_outputs" and form is not None:
            sent, value = form
        if value is None:
            continue
        value = check(sent, value)
        if takes_any or name in profile.inputs:
            values[name] = value
        elif not asks_for_nothing(call, name, value):
            msg = f"model '{known.model.name}' does not take '{sent}'"
            raise FieldError(sent, msg, "unsupported_parameter")
    if flag(document, _STOP_SHOWN) and document.get("stop") and takes_any:
        values[_STOP_SHOWN] = True  # of a model without it, no stop word is asked for
    if profile.max_tokens and (takes_any or "max_tokens" in profile.inputs):
        values.setdefault("max_tokens", profile.max_tokens)
    return values


def _form(document: dict[str, Any], call: Call) -> tuple[str, dict[str, Any]] | None:
    """What a request calls the form of the text if it has another name for it, and `structured_outputs` of that.

    Raises:
        FieldError: it says so twice.
    """
    forms = [name for name in FORMS if not asks_for_nothing(call, name, document.get(name))]
    if not forms:
        return None
    others = [name for name in (*forms, "structured_outputs", "response_format") if document.get(name)]
    if len(others) > 1:
        msg = f"'{others[0]}' and '{others[1]}' cannot both say what form the text has"
        raise FieldError(others[0], msg)
    return forms[0], {FORMS[forms[0]]: document[forms[0]]}


def sampling_tensors(
    known: KnownModel, values: dict[str, Any], stop: tuple[str, ...], more: dict[str, Any]
) -> dict[str, Tensor]:
    """Each value in its own input, and those that have none together, with `more`."""
    profile, signature = known.profile, known.model.signature
    tensors = {}
    rest = values | more
    for name in values:
        spec = profile.inputs.get(name)
        if spec is not None:
            make = json_tensor if isinstance(values[name], dict | list) else value_tensor
            tensors[spec.name] = make(signature, spec, name, rest.pop(name))
    spec = profile.inputs.get(SAMPLING_PARAMETERS)
    if spec is not None:
        if stop and "stop" not in profile.inputs:
            rest["stop"] = list(stop)
        tensors[spec.name] = json_tensor(signature, spec, SAMPLING_PARAMETERS, rest)
    return tensors
