"""What documents of the control plane make of a variant."""

import pytest
from botocore.session import get_session

from halimede.hosting.specs import Variant

MODEL = {"PrimaryContainer": {"Image": "image"}}
VARIANT = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu"}


@pytest.mark.parametrize(
    ("strategy", "least_outstanding"), [("LEAST_OUTSTANDING_REQUESTS", True), ("RANDOM", False)]
)
def test_the_routing_strategies_of_the_service_model(strategy: str, least_outstanding: bool) -> None:
    known = get_session().get_service_model("sagemaker").shape_for("RoutingStrategy")
    assert strategy in known.enum
    variant = {**VARIANT, "RoutingConfig": {"RoutingStrategy": strategy}}
    assert Variant.from_documents(variant, MODEL).least_outstanding is least_outstanding


def test_without_a_strategy_any_instance_is_asked() -> None:
    assert not Variant.from_documents(VARIANT, MODEL).least_outstanding
