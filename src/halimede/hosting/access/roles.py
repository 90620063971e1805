"""Roles of instances: keys of their own, with which what runs in them may use the host's services.

The keys of a variant hold as long as its fleet has instances. They follow from a secret of the host's and from names,
so that another process of the host knows them again, and they need not be written anywhere.
"""

import base64
import hmac
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from halimede.hosting.access.keys import Key
from halimede.hosting.addresses import url_of
from halimede.hosting.identity import DEFAULT_ROLE, EndpointId
from halimede.hosting.secret_file import read_secret
from halimede.hosting.specs import Variant

ACTIONS = (
    "s3:*",
    "logs:*",
    "cloudwatch:PutMetricData",
    "sagemaker:InvokeEndpoint",
    "sagemaker:InvokeEndpointWithResponseStream",
    "sagemaker:InvokeEndpointAsync",
)
"""What instances may do: use their account's objects, logs and metrics, and invoke its endpoints."""

_SESSION = "SageMaker"
"""The name of the session in which SageMaker assumes execution roles."""

_ID_CHARACTERS = 16


class RoleWatcher(Protocol):
    """Is told which keys of instances hold."""

    def began(self, key: Key) -> None:
        """A key holds from now on."""

    def ended(self, access_key: str) -> None:
        """The key with an id holds no more."""


class InstanceRoles:
    """The keys of instances. Lives on the event loop; `open` before, which blocks.

    Attributes:
        watcher: is told which keys hold; None for nobody.
    """

    def __init__(self, path: Path) -> None:
        """Roles whose keys follow from the secret in a file, which `open` makes if there is none."""
        self._path = path
        self._secret = b""
        self._url = ""
        self._keys: dict[str, Key] = {}
        self.watcher: RoleWatcher | None = None

    def open(self, address: str, port: int) -> None:
        """Read the secret, or make it; the host listens at an address and port."""
        self._url = url_of(address, port)
        self._secret = read_secret(self._path, "keys of instances")

    def begin(self, endpoint: EndpointId, fleet: str, variant: Variant) -> Mapping[str, str]:
        """The variables that point AWS's SDKs in the instances of a variant to the host; its keys hold from now on."""
        key = self._key(endpoint, fleet, variant)
        self._keys[key.id] = key
        if self.watcher is not None:
            self.watcher.began(key)
        return {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_REGION": endpoint.region,
            "AWS_DEFAULT_REGION": endpoint.region,
            "AWS_ACCESS_KEY_ID": key.id,
            "AWS_SECRET_ACCESS_KEY": key.secret,
            "AWS_SESSION_TOKEN": key.token,
        }

    def end(self, fleet: str, variant: str) -> None:
        """The keys of a variant of a fleet hold no more."""
        key = self._keys.pop(self._id(fleet, variant), None)
        if key is not None and self.watcher is not None:
            self.watcher.ended(key.id)

    def all(self) -> Sequence[Key]:
        """The keys that hold."""
        return list(self._keys.values())

    def find(self, access_key: str) -> Key | None:
        """The key with an id, if it holds."""
        return self._keys.get(access_key)

    def _key(self, endpoint: EndpointId, fleet: str, variant: Variant) -> Key:
        return Key(
            self._id(fleet, variant.name),
            base64.b64encode(self._derived("secret", fleet, variant.name)).decode()[:40],
            endpoint.account,
            ACTIONS,
            token=base64.b64encode(self._derived("token", fleet, variant.name)).decode(),
            role=variant.role.rpartition("/")[2] or DEFAULT_ROLE,
            session=_SESSION,
        )

    def _id(self, fleet: str, variant: str) -> str:
        return "ASIA" + base64.b32encode(self._derived("id", fleet, variant)).decode()[:_ID_CHARACTERS]

    def _derived(self, *names: str) -> bytes:
        return hmac.digest(self._secret, "/".join(names).encode(), "sha512")
