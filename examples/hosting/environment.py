"""What boto3 has to find in the environment."""

import os

import boto3

_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def check_environment() -> None:
    """End the program, saying what is missing, if boto3 knows neither a host nor a region of AWS."""
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    if not missing or "AWS_PROFILE" in os.environ:
        return
    if "AWS_ENDPOINT_URL" in missing and boto3.Session().region_name is not None:
        return  # it is AWS that is meant
    raise SystemExit(
        f"not set: {', '.join(missing)}; for a host on this machine (`halimede host`), say first:\n"
        '    eval "$(.venv/bin/halimede host --print-env)"'
    )
