"""Who asks, and how what they own is named: names are told apart by account and region."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

DEFAULT_ROLE = "halimede"
"""The name of the role that callers have, and of the execution role of models that name none."""


TRANSFORM_JOBS = "transform_jobs"
"""The endpoint's name of what belongs to transform jobs, whose names take those of variants; no endpoint has it."""


class Scope(NamedTuple):
    """An account in a region. Nothing in one scope sees what is in another one.

    Attributes:
        account: twelve digits.
        region: such as ``us-east-1``.
    """

    account: str = "000000000000"
    region: str = "us-east-1"

    def arn(self, kind: str, name: str) -> str:
        """The ARN of a resource of SageMaker; `kind` is such as ``endpoint-config``."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{kind}/{name.lower()}"

    def directory(self, parent: Path) -> Path:
        """Where a directory of the host has what belongs to the scope."""
        return parent / self.account / self.region


class EndpointId(NamedTuple):
    """An endpoint, told apart from those of other accounts and regions."""

    account: str
    region: str
    name: str

    @property
    def scope(self) -> Scope:
        """Where its name holds."""
        return Scope(self.account, self.region)

    def variant_words(self, variant: str) -> str:
        """How texts call one of its variants, or the transform job whose name takes the place of that."""
        return (
            f"transform job '{variant}'"
            if self.name == TRANSFORM_JOBS
            else f"endpoint '{self.name}', variant '{variant}'"
        )

    @property
    def log_group(self) -> str:
        """The log group in which its instances have their streams."""
        if self.name == TRANSFORM_JOBS:
            return "/aws/sagemaker/TransformJobs"
        return f"/aws/sagemaker/Endpoints/{self.name}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as its signature says.

    Attributes:
        access_key: the access key's id, "" for an unsigned request.
        account: twelve digits.
        region: such as ``us-east-1``.
        role: the name of the role that the caller has assumed.
        session: the name of the session in which they have; "" for the access key's id.
        is_local: the request came from this machine.
    """

    access_key: str = ""
    account: str = "000000000000"
    region: str = "us-east-1"
    role: str = DEFAULT_ROLE
    session: str = ""
    is_local: bool = field(default=False, compare=False)

    @property
    def scope(self) -> Scope:
        """Where the names hold that the caller uses."""
        return Scope(self.account, self.region)

    @property
    def arn(self) -> str:
        """Who the caller is: an assumed role, in which the SDKs find an execution role."""
        session = self.session or self.access_key or "anonymous"
        return f"arn:aws:sts::{self.account}:assumed-role/{self.role}/{session}"
