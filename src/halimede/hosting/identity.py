"""Who asks, and how what they own is named."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as its signature says.

    Attributes:
        access_key: the access key's id, "" for an unsigned request.
        account: twelve digits.
        region: such as ``us-east-1``.
    """

    access_key: str = ""
    account: str = "000000000000"
    region: str = "us-east-1"

    def arn(self, kind: str, name: str) -> str:
        """The ARN of a resource of SageMaker; `kind` is such as ``endpoint-config``."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{kind}/{name.lower()}"
