"""The parts of AWS's service models that the host keeps."""

from botocore.loaders import Loader
from botocore.model import ServiceModel

from halimede.hosting.api.service_models import service_model


def test_the_operations_that_are_wanted_keep_their_shapes_without_descriptions() -> None:
    whole = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    part = service_model("sagemaker", frozenset({"CreateEndpointConfig"}))
    assert part.operation_names == whole.operation_names
    wanted, kept = (each.operation_model("CreateEndpointConfig") for each in (whole, part))
    assert list(kept.input_shape.members) == list(wanted.input_shape.members)
    assert kept.input_shape.required_members == wanted.input_shape.required_members
    variant, kept_variant = (each.shape_for("ProductionVariantInstanceType") for each in (whole, part))
    assert kept_variant.metadata == variant.metadata
    assert not kept.documentation
    assert part.operation_model("CreateTrainingJob").input_shape is None
    assert len(part.shape_names) < len(whole.shape_names) / 10


def test_all_operations_keep_their_shapes_where_none_are_named() -> None:
    model = service_model("sagemaker-runtime", frozenset())
    assert "Body" in model.operation_model("InvokeEndpoint").input_shape.members
