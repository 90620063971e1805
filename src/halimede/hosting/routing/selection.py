"""Which variant, and which of its instances, a request goes to."""

import random

from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute


def choose_variant(route: EndpointRoute, wanted: str | None) -> VariantRoute:
    """The variant that the client wants, or one at random by the variants' weights.

    Raises:
        ApiError: the endpoint has no such variant, or all weights are 0.
    """
    variants = route.variants
    if wanted is not None:
        variant = variants.get(wanted)
        if variant is None:
            msg = (
                f"Variant {wanted} not found for endpoint {route.name} of account {route.account}. Its variants "
                f"are {', '.join(variants)}"
            )
            raise invalid_invocation(msg)
        return variant
    if route.only_variant is not None:
        return route.only_variant
    every = list(variants.values())
    weights = [variant.weight for variant in every]
    if not any(weights):
        msg = f"all variants of endpoint {route.name} have the weight 0; name one with TargetVariant"
        raise invalid_invocation(msg)
    # which requests go where is no secret
    return random.choices(every, weights)[0]  # noqa: S311


def choose_target(variant: VariantRoute) -> Target:
    """An instance of the variant: any, or one with the fewest requests in flight.

    Raises:
        ApiError: none takes requests (503 ``ServiceUnavailable``).
    """
    targets = variant.targets
    if len(targets) == 1 and not targets[0].draining:
        return targets[0]
    able = [target for target in targets if not target.draining]
    if not able:
        msg = f"Variant {variant.spec.name} has no instance that takes requests now; try again later"
        raise ApiError("ServiceUnavailable", msg, 503)
    able = [target for target in able if not target.refuses] or able
    if variant.spec.least_outstanding:
        counts = [target.outstanding for target in able]
        fewest = min(counts)
        able = [target for target, count in zip(able, counts, strict=True) if count == fewest]
    return random.choice(able)  # noqa: S311
