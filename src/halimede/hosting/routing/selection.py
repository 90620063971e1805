"""Which variant, and which of its instances, a request goes to."""

import random
from collections.abc import Iterator, Mapping

from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute


def choose_variant(route: EndpointRoute, wanted: str | None) -> VariantRoute:
    """The variant that the client wants, or one at random by the variants' weights; before, a fleet by its share.

    Raises:
        ApiError: the endpoint has no such variant, or all weights are 0.
    """
    if wanted is None and route.only_variant is not None:
        return route.only_variant
    first: VariantRoute | None = None
    for variants in _fleets_in_order(route) if route.beside else (route.variants,):
        variant = variants.get(wanted) if wanted is not None else _by_weight(variants)
        if variant is not None:
            if not route.beside or variant.is_able:
                return variant
            first = first or variant  # another fleet may be able
    if first is not None:
        return first
    if wanted is None:
        msg = f"all variants of endpoint {route.name} have the weight 0; name one with TargetVariant"
    else:
        names = dict.fromkeys(name for variants in route.fleets() for name in variants)
        msg = (
            f"Variant {wanted} not found for endpoint {route.name} of account {route.account}. Its variants "
            f"are {', '.join(names)}"
        )
    raise invalid_invocation(msg)


def _fleets_in_order(route: EndpointRoute) -> Iterator[Mapping[str, VariantRoute]]:
    """The variants of the fleet that a request goes to, and then of the others."""
    point = random.random()  # noqa: S311 - which requests go where is no secret
    chosen = route.variants
    for fleet in route.beside:
        if point < fleet.share:
            chosen = fleet.variants
            break
        point -= fleet.share
    yield chosen
    for variants in route.fleets():
        if variants is not chosen:
            yield variants


def _by_weight(variants: Mapping[str, VariantRoute]) -> VariantRoute | None:
    """A variant at random; None if all weights are 0."""
    every = list(variants.values())
    weights = [variant.weight for variant in every]
    return random.choices(every, weights)[0] if any(weights) else None  # noqa: S311


def able_elsewhere(route: EndpointRoute, variant: VariantRoute, wanted: str | None) -> VariantRoute | None:
    """A variant of another fleet that can take a request which one of this fleet has not answered."""
    name = variant.spec.name
    for variants in route.fleets():
        other = variants.get(name)
        if other is variant:
            continue
        if other is None and wanted is None:
            other = _by_weight(variants)
        if other is not None and other.is_able:
            return other
    return None


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
