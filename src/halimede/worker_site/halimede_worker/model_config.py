"""The configuration that a model completes itself, in `auto_complete_config`."""

import json
from typing import Any, Collection, Dict, List


class ModelConfig:
    """A model's configuration, of which it may set what is not set yet.

    Args:
        model_config: the configuration as JSON.
    """

    __module__ = "triton_python_backend_utils"

    def __init__(self, model_config: str) -> None:
        self._model_config: Dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> Dict[str, Any]:
        """The configuration itself: what is changed in it is changed."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the largest batch that the model takes.

        Raises:
            ValueError: the configuration says a larger one.
        """
        configured = self._model_config["max_batch_size"]
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function "
                f"for model '{self._model}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Have requests put together into batches, unless the configuration says how already.

        Raises:
            ValueError: the model's scheduler is another one.
        """
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config "
                    f"function for model '{self._model}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: Dict[str, Any]) -> None:  # noqa: A002 - models may call it by this name
        """Add an input, or complete the one that has the same name.

        Args:
            input: `name`, `data_type`, `dims` and perhaps `optional`, as in the configuration.

        Raises:
            ValueError: a property is missing or unknown, or is not what the configuration says.
        """
        self._add("input", input, ("name", "data_type", "dims", "optional"))

    def add_output(self, output: Dict[str, Any]) -> None:
        """Add an output, or complete the one that has the same name.

        Args:
            output: `name`, `data_type` and `dims`, as in the configuration.

        Raises:
            ValueError: a property is missing or unknown, or is not what the configuration says.
        """
        self._add("output", output, ("name", "data_type", "dims"))

    def set_model_transaction_policy(self, transaction_policy_dict: Dict[str, Any]) -> None:
        """Set whether the model may send any number of responses to a request.

        Args:
            transaction_policy_dict: `decoupled`.

        Raises:
            ValueError: a property is unknown, or is not what the configuration says.
        """
        if not transaction_policy_dict.keys() <= {"decoupled"}:
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._model}' "
                "contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" in transaction_policy_dict:
            decoupled = transaction_policy_dict["decoupled"]
            if policy.setdefault("decoupled", decoupled) != decoupled:
                raise ValueError(
                    "trying to change decoupled property in auto-complete-config for model "
                    f"'{self._model}', which is already set to '{policy['decoupled']}'."
                )

    @property
    def _model(self) -> str:
        name: str = self._model_config["name"]
        return name

    def _add(self, kind: str, entry: Dict[str, Any], allowed: Collection[str]) -> None:
        """Add an entry to the list of inputs or outputs, or merge it with the one of the same name."""
        self._check_properties(kind, entry, allowed)
        entries: List[Dict[str, Any]] = self._model_config[kind]
        for present in entries:
            if present["name"] == entry["name"]:
                self._check_agreement(kind, entry, present)
                present.update(entry)
                return
        entries.append(entry)

    def _check_properties(self, kind: str, entry: Dict[str, Any], allowed: Collection[str]) -> None:
        function = f"in auto-complete-config function for model '{self._model}'"
        if not set(entry) <= set(allowed):
            names = [f"'{name}'" for name in allowed]
            raise ValueError(
                f"{kind} '{entry['name']}' {function} contains property other than "
                f"{', '.join(names[:-1])} and {names[-1]}."
            )
        if "name" not in entry:
            raise ValueError(f"{kind} {function} is missing 'name' property.")
        for property_name in ("data_type", "dims"):
            if property_name not in entry:
                raise ValueError(
                    f"{kind} '{entry['name']}' {function} is missing '{property_name}' property."
                )

    def _check_agreement(self, kind: str, entry: Dict[str, Any], present: Dict[str, Any]) -> None:
        """Check that what the configuration says already is what the model says."""
        name = entry["name"]
        if present["data_type"] not in ("TYPE_INVALID", entry["data_type"]):
            raise ValueError(
                f"unable to load model '{self._model}', configuration expects datatype "
                f"{present['data_type']} for {kind} '{name}', model provides {entry['data_type']}"
            )
        if present["dims"] and present["dims"] != entry["dims"]:
            raise ValueError(
                f"model '{self._model}', tensor '{name}': the model expects dims {entry['dims']} "
                f"but the model configuration specifies dims {present['dims']}"
            )
        if "optional" in entry and present.get("optional", entry["optional"]) != entry["optional"]:
            raise ValueError(
                f"model '{self._model}', tensor '{name}': the model expects optional {entry['optional']} "
                f"but the model configuration specifies optional {present['optional']}"
            )
