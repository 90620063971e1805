"""Endpoints of S3 services elsewhere."""

from halimede.hosting.errors import invalid

AWS = "aws"
"""The endpoint that stands for AWS's own service, in the region that the environment says."""


def check_endpoint(endpoint: str) -> None:
    """Refuse what is not an endpoint.

    Raises:
        ApiError: it is not an endpoint.
    """
    if endpoint != AWS and not endpoint.startswith(("http://", "https://")):
        raise invalid(f"the endpoint of an S3 service is a URL, or '{AWS}'; got '{endpoint}'")
