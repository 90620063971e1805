"""Connections to buckets: obstore's stores, with the credentials that `tritonserver` would use."""

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.credentials import credentials_for
from halimede.repository.cloud.locations import Location, Service

_USUAL_REGION = "us-east-1"
_CLIENT = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=30),
    "timeout": timedelta(days=1),
}
"""A connection on which nothing comes for so long is given up; one on which something comes is not."""

_RETRIES = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}


def open_store(location: Location, environment: Mapping[str, str] = os.environ) -> ObjectStore:
    """A connection to the bucket of a repository, on which nothing has been asked yet.

    Raises:
        InvalidArgumentError: the credentials are malformed.
    """
    opener: Callable[[Location, Mapping[str, str], Mapping[str, str]], ObjectStore] = {
        Service.S3: _s3,
        Service.GCS: _gcs,
        Service.AZURE: _azure,
    }[location.service]
    try:
        return opener(location, credentials_for(location, environment), environment)
    except (BaseError, BotoCoreError, ValueError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidArgumentError(f"{location.url}: the credentials cannot be used: {reason}") from error


def _s3(location: Location, given: Mapping[str, str], environment: Mapping[str, str]) -> ObjectStore:
    endpoint = (
        location.endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL", "")
    )
    settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if "key_id" in given and "secret_key" in given:
        settings["credential_provider"] = _Fixed(given)
        region = given.get("region") or environment.get("AWS_DEFAULT_REGION")
    else:
        session = boto3.Session(profile_name=given.get("profile"), region_name=given.get("region"))
        region = session.region_name
        try:
            settings["credential_provider"] = Boto3CredentialProvider(session)
        except ValueError:  # there are none: what is public can still be read
            settings["skip_signature"] = True
    return S3Store(location.bucket, region=region or _USUAL_REGION, **settings, **_connection(endpoint))


class _Fixed:
    """Credentials that do not change."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.config: dict[str, Any] = {}
        self._given = given

    def __call__(self) -> Any:
        return {
            "access_key_id": self._given["key_id"],
            "secret_access_key": self._given["secret_key"],
            "token": self._given.get("session_token"),
            "expires_at": None,
        }


def _gcs(location: Location, given: Mapping[str, str], environment: Mapping[str, str]) -> ObjectStore:
    settings: dict[str, Any] = {}
    emulator = environment.get("STORAGE_EMULATOR_HOST", "")
    if emulator:
        emulator = emulator if "://" in emulator else f"http://{emulator}"
        settings = {"base_url": emulator, "skip_signature": True}
    elif "path" in given:
        settings = {"application_credentials": given["path"]}
    return GCSStore(location.bucket, **settings, **_connection(emulator))


def _azure(location: Location, given: Mapping[str, str], environment: Mapping[str, str]) -> ObjectStore:
    account = location.account
    settings: dict[str, Any] = {"account_name": account}
    if location.endpoint:
        settings["endpoint"] = f"{location.endpoint}/{account}"
    own = environment.get("AZURE_STORAGE_ACCOUNT", account) == account
    if given.get("account_str", account) == account and "account_key" in given:
        key = given["account_key"]
    else:
        key = environment.get("AZURE_STORAGE_KEY", "") if own else ""
    kind = environment.get("AZURE_STORAGE_AUTH_TYPE", "")
    if key:
        settings |= {"account_key": key, "credential_type": "access_key"}
    elif kind == "managed_identity":
        settings["credential_type"] = "managed_identity"
        if client := environment.get("AZURE_STORAGE_CLIENT_ID"):
            settings["client_id"] = client
    elif kind == "":  # what is public can be read without
        settings["skip_signature"] = True
    elif kind != "default":
        raise InvalidArgumentError(
            f"AZURE_STORAGE_AUTH_TYPE must be managed_identity or default, got '{kind}'"
        )
    return AzureStore(location.bucket, **settings, **_connection(location.endpoint))


def _connection(endpoint: str) -> dict[str, Any]:
    return {
        "client_options": {**_CLIENT, "allow_http": endpoint.startswith("http://")},
        "retry_config": _RETRIES,
    }
