"""What of an endpoint whoever changes it for somebody else has to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from halimede.hosting.identity import Caller, EndpointId


@dataclass(frozen=True, slots=True)
class Deployed:
    """An endpoint, as it is now.

    Attributes:
        status: SageMaker's word for its state.
        config_name: the endpoint configuration that it has; of one that is being created, that it is to have.
        config: what that says.
        reason: why the last change did not come about, "" if it did.
    """

    status: str
    config_name: str
    config: Mapping[str, Any]
    reason: str = ""

    @property
    def is_in_service(self) -> bool:
        """Whether it may be changed."""
        return self.status == "InService"


class Endpoints(Protocol):
    """All endpoints, for whoever deploys to them."""

    def deployed(self, endpoint: EndpointId) -> Deployed | None:
        """An endpoint as it is now; None if there is none of that name."""

    async def make_config(self, request: Mapping[str, Any], caller: Caller) -> None:
        """Make an endpoint configuration, as `CreateEndpointConfig` does.

        Raises:
            ApiError: it is refused.
        """

    async def deploy(self, endpoint: EndpointId, config_name: str) -> None:
        """Have an endpoint become what a configuration says. It returns before it is.

        Raises:
            ApiError: it is not in service, or may not be changed so.
        """
