"""Variants of several containers: which of them a request is for, and what error texts call it."""

from halimede.hosting.errors import invalid_invocation
from halimede.hosting.routing.heads import CONTAINER, TARGET_CONTAINER
from halimede.hosting.routing.table import EndpointRoute, VariantRoute
from halimede.http1.head import Head
from halimede.http1.upstream import ResponseHead


def check_target_container(route: EndpointRoute, variant: VariantRoute, wanted: str | None) -> None:
    """Refuse a request that names no container where it should, or one where it should not.

    Args:
        route: the endpoint.
        variant: the variant that the request goes to.
        wanted: the container that it names (`TargetContainerHostname`); None if it names none.

    Raises:
        ApiError: so it is, or there is no such container.
    """
    spec = variant.spec
    names = ", ".join(container.hostname for container in spec.containers)
    if not spec.direct:
        if wanted is not None:
            msg = (
                f"Endpoint {route.name} is not a multi-container endpoint with direct invocation and does not support "
                f"target container hostname header {wanted}."
            )
            raise invalid_invocation(msg)
    elif wanted is None:
        msg = (
            f"Endpoint {route.name} is a multi-container endpoint with direct invocation; say with "
            f"TargetContainerHostname which container is meant. Its containers are {names}."
        )
        raise invalid_invocation(msg)
    elif all(container.hostname != wanted for container in spec.containers):
        msg = f"Container {wanted} not found for endpoint {route.name}. Its containers are {names}."
        raise invalid_invocation(msg)


def container_name(variant: VariantRoute, head: Head, response: ResponseHead | None) -> str:
    """What error texts call the container that did not do what it should.

    Args:
        variant: the variant.
        head: the client's.
        response: what its instance has answered, if it has.
    """
    spec = variant.spec
    if spec.further and response is not None and CONTAINER in response.headers:
        return response.headers[CONTAINER]
    if spec.direct:
        return head.headers.get(TARGET_CONTAINER, spec.container_name)
    return spec.container_name
