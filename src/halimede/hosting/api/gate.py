"""Who may come in: callers told by their signatures, which are verified or only read."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from halimede.frontends.http.head import Head
from halimede.hosting.api.keys import Key
from halimede.hosting.api.presigned import check_kind, signer_2, verify_2
from halimede.hosting.api.signature import Signature, read_signature, verify
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller

_MAX_SHOWN = 128


class Gate:
    """Tells callers.

    Attributes:
        verifies: signatures are verified; otherwise anybody may do anything.
    """

    def __init__(
        self, keys: Mapping[str, Key] | None, caller: Caller, now: Callable[[], datetime] | None = None
    ) -> None:
        """A gate.

        Args:
            keys: the keys that may come in; None for anybody.
            caller: whose account and region count where a request does not say.
            now: the time, with which that of signatures is compared.
        """
        self.verifies = keys is not None
        self._keys = keys or {}
        self._caller = caller
        self._now = now or (lambda: datetime.now(UTC))

    @property
    def account(self) -> str:
        """The account where requests do not say."""
        return self._caller.account

    def recognize(self, head: Head) -> None:
        """Look at who says to have sent a request, before its body is read.

        Raises:
            ApiError: they may not come in, whatever the body is.
        """
        if self.verifies:
            self._signer(head)

    def admit(
        self, head: Head, target: str, digest: str | None, services: Collection[str] = ()
    ) -> tuple[Caller, Key | None]:
        """Who sent a request, and the key that says what they may do; None for anything.

        Args:
            head: the request's.
            target: path and query as they were sent.
            digest: the SHA-256 of its body, in hexadecimal digits; None if a header says it, against which whoever
                reads the body has to hold it.
            services: for which of them it may have been signed; for any if there is none.

        Raises:
            ApiError: they may not come in.
        """
        if not self.verifies:
            try:
                signature = read_signature(head)
            except ApiError:
                signature = None  # nobody asked for a right one
            if signature is None:
                return self._caller, None
            return Caller(signature.access_key, self._caller.account, signature.region), None
        if "s3" in services:
            check_kind(head)
            if access_key := signer_2(head):
                key = self._key(access_key)
                verify_2(head, key.secret, self._now())
                return Caller(key.id, key.account, self._caller.region), key
        signature, key = self._signer(head)
        if services and signature.service not in services:
            msg = f"Credential should be scoped to correct service: '{min(services)}', not '{signature.service}'"
            raise ApiError("InvalidSignatureException", msg, 403)
        verify(head, target, digest, signature, key.secret, self._now())
        return Caller(signature.access_key, key.account, signature.region), key

    def _signer(self, head: Head) -> tuple[Signature, Key]:
        signature = read_signature(head)
        if signature is None:
            msg = "the request is not signed; sign it with a key of this host's keys file (AWS Signature Version 4)"
            raise ApiError("MissingAuthenticationTokenException", msg, 403)
        return signature, self._key(signature.access_key)

    def _key(self, access_key: str) -> Key:
        key = self._keys.get(access_key)
        if key is None:
            msg = f"the access key '{access_key[:_MAX_SHOWN]}' is not in this host's keys file"
            raise ApiError("UnrecognizedClientException", msg, 403)
        return key
