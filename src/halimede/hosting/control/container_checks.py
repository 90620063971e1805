"""How the containers of a model have to fit together: in a row, or side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

from halimede.hosting.errors import invalid

_NAME = "ContainerHostname"


def check_containers(request: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a model whose containers could not be told apart, or not be called as it asks.

    Args:
        request: a `CreateModel` request.
        containers: its containers, in their order.

    Raises:
        ApiError: names lack, or are given twice, or one of several containers is to hold many models.
    """
    names = [container[_NAME] for container in containers if container.get(_NAME)]
    is_direct = request.get("InferenceExecutionConfig", {}).get("Mode") == "Direct"
    if is_direct and len(names) < len(containers):
        msg = f"InferenceExecutionConfig has the Mode Direct: each container needs a {_NAME}, by which requests name it"
        raise invalid(msg)
    if len(containers) == 1:
        return
    if names and len(names) < len(containers):
        msg = f"{len(names)} of {len(containers)} containers have a {_NAME}: give one to each of them, or to none"
        raise invalid(msg)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise invalid(f"Two containers have the {_NAME} '{twice[0]}'; names must differ")
    for number, container in enumerate(containers, 1):
        if container.get("Mode") == "MultiModel":
            msg = (
                f"container {number} of {len(containers)} has the Mode MultiModel, which is not available for one of "
                f"several containers in this version; make it the only container of a model of its own"
            )
            raise invalid(msg)
