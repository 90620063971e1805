"""How what is scaled is named, and its targets, policies and scheduled actions."""

import re
import secrets
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller, EndpointId, Scope

NAMESPACE = "sagemaker"
DIMENSION = "sagemaker:variant:DesiredInstanceCount"

POLICY_PREFIX = "arn:aws:autoscaling:"
"""ARNs of policies begin so."""

_NAME = "[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}"
_RESOURCE = re.compile(f"endpoint/({_NAME})/variant/({_NAME})")

_MAX_SHOWN = 256


class VariantId(NamedTuple):
    """A variant, told apart from those of other endpoints, accounts and regions."""

    account: str
    region: str
    endpoint: str
    variant: str

    @property
    def scope(self) -> Scope:
        """Where its endpoint's name holds."""
        return Scope(self.account, self.region)

    @property
    def endpoint_id(self) -> EndpointId:
        """Its endpoint."""
        return EndpointId(self.account, self.region, self.endpoint)

    @property
    def resource(self) -> str:
        """What requests call it (`ResourceId`)."""
        return f"endpoint/{self.endpoint}/variant/{self.variant}"

    @property
    def members(self) -> dict[str, str]:
        """The members of requests and answers that say which variant it is."""
        return {
            "ServiceNamespace": NAMESPACE,
            "ResourceId": self.resource,
            "ScalableDimension": DIMENSION,
        }

    @property
    def words(self) -> str:
        """The same, for the texts of errors."""
        return (
            f"service namespace: {NAMESPACE}, resource ID: {self.resource}, scalable dimension: {DIMENSION}"
        )

    @classmethod
    def of(cls, scope: Scope, resource: str) -> "VariantId":
        """The variant that requests of a scope call so.

        Raises:
            ApiError: it is no name of a variant.
        """
        found = _RESOURCE.fullmatch(resource)
        if found is None:
            raise _unsupported(
                f"the resource ID of a variant is endpoint/NAME/variant/NAME, got '{_short(resource)}'"
            )
        return cls(*scope, found[1], found[2])


def variant_of(request: Mapping[str, Any], caller: Caller) -> VariantId:
    """The variant that a request is about.

    Raises:
        ApiError: it is about anything else.
    """
    check_namespace(request)
    dimension = request["ScalableDimension"]
    if dimension != DIMENSION:
        raise _unsupported(f"this host has the dimension {DIMENSION}, got '{dimension}'")
    return VariantId.of(caller.scope, request["ResourceId"])


def check_namespace(request: Mapping[str, Any]) -> None:
    """Refuse what is about the resources of other services.

    Raises:
        ApiError: it is.
    """
    if request["ServiceNamespace"] != NAMESPACE:
        raise _unsupported(f"this host has the namespace {NAMESPACE}, got '{request['ServiceNamespace']}'")


def _unsupported(why: str) -> ApiError:
    return invalid(f"Unsupported service namespace, resource type or scalable dimension: {why}")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def new_target_arn(scope: Scope) -> str:
    """The ARN of a new scalable target."""
    token = secrets.token_hex(18)
    return f"arn:aws:application-autoscaling:{scope.region}:{scope.account}:scalable-target/{token}"


def new_policy_arn(variant: VariantId, name: str) -> str:
    """The ARN of a new policy."""
    return _arn_of_part(variant, "scalingPolicy", "policyName", name)


def new_action_arn(variant: VariantId, name: str) -> str:
    """The ARN of a new scheduled action."""
    return _arn_of_part(variant, "scheduledAction", "scheduledActionName", name)


def _arn_of_part(variant: VariantId, kind: str, member: str, name: str) -> str:
    lead = f"{POLICY_PREFIX}{variant.region}:{variant.account}:{kind}:{uuid.uuid4()}"
    return f"{lead}:resource/{NAMESPACE}/{variant.resource}:{member}/{name}"


def role_arn(scope: Scope) -> str:
    """The role with which AWS scales endpoints, which nothing here needs."""
    role = "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
    return f"arn:aws:iam::{scope.account}:role/aws-service-role/sagemaker.application-autoscaling.amazonaws.com/{role}"
