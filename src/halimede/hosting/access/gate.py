"""Who may come in: callers told by their signatures, which are verified or only read."""

import hmac
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from halimede.core.memo import Memo
from halimede.hosting.access.keys import Key
from halimede.hosting.access.presigned import check_kind, parameters_of, signer_2, verify_2
from halimede.hosting.access.refusals import Reason, RefusedError
from halimede.hosting.access.signature import Signature, claimed_region, read_signature, verify
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller, Scope
from halimede.http1.head import Head

_MAX_SHOWN = 128
_REMEMBERED = 256
"""Longer credentials are read each time."""

_TOKEN = "x-amz-security-token"  # noqa: S105 - the name of a header


def _issued_none(_: str) -> Key | None:
    """Nobody issues keys."""
    return None


class Gate:
    """Tells callers.

    Attributes:
        verifies: signatures are verified; otherwise anybody may do anything.
    """

    def __init__(
        self,
        keys: Mapping[str, Key] | None,
        caller: Caller,
        now: Callable[[], datetime] | None = None,
        issued: Callable[[str], Key | None] = _issued_none,
    ) -> None:
        """A gate.

        Args:
            keys: the keys that may come in; None for anybody.
            caller: whose account and region count where a request does not say.
            now: the time, with which that of signatures is compared.
            issued: the key with an id that the host has issued itself, to instances.
        """
        self.verifies = keys is not None
        self._keys = keys or {}
        self._caller = caller
        self._now = now or (lambda: datetime.now(UTC))
        self._issued = issued
        self._scopes: Memo[str, Scope] = Memo(self._scope)

    def scope_of(self, head: Head) -> Scope:
        """Where the names of a request hold whose signature nobody verifies."""
        # clients repeat the first part, which has the credential, for a day
        credential = head.headers.get("authorization", "").partition(",")[0]
        return self._scopes[credential] if len(credential) < _REMEMBERED else self._scope(credential)

    def _scope(self, credential: str) -> Scope:
        return Scope(self._caller.account, claimed_region(credential) or self._caller.region)

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
            return self._claimed(head)
        if "s3" in services:
            check_kind(head)
            if access_key := signer_2(head):
                key = self._key(access_key, head)
                verify_2(head, key.secret, self._now())
                return _caller(key, self._caller.region), key
        signature, key = self._signer(head)
        if services and signature.service not in services:
            msg = f"Credential should be scoped to correct service: '{min(services)}', not '{signature.service}'"
            raise RefusedError(Reason.WRONG_SCOPE, msg)
        verify(head, target, digest, signature, key.secret, self._now())
        return _caller(key, signature.region), key

    def _claimed(self, head: Head) -> tuple[Caller, Key | None]:
        """Who says to have sent a request. Only what the host itself has issued is held to what it may do."""
        try:
            signature = read_signature(head)
        except ApiError:
            signature = None  # nobody asked for a right one
        if signature is None:
            return self._caller, None
        key = self._issued(signature.access_key)
        if key is not None:
            return _caller(key, signature.region), key
        return Caller(signature.access_key, self._caller.account, signature.region), None

    def _signer(self, head: Head) -> tuple[Signature, Key]:
        signature = read_signature(head)
        if signature is None:
            msg = "The request is not signed; sign it with a key of this host's keys file (AWS Signature Version 4)"
            raise RefusedError(Reason.UNSIGNED, msg)
        return signature, self._key(signature.access_key, head)

    def _key(self, access_key: str, head: Head) -> Key:
        """The key with an id; one that was issued counts only with its session token."""
        key = self._keys.get(access_key) or self._issued(access_key)
        if key is None:
            msg = f"The access key '{access_key[:_MAX_SHOWN]}' is not in this host's keys file"
            raise RefusedError(Reason.UNKNOWN_KEY, msg)
        if key.token:
            parameters = {name.lower(): value for name, value in parameters_of(head).items()}
            token = head.headers.get(_TOKEN) or parameters.get(_TOKEN, "")
            if not hmac.compare_digest(token.encode(), key.token.encode()):
                msg = f"The access key '{access_key}' counts only with the session token that it was issued with"
                raise RefusedError(Reason.WRONG_TOKEN, msg)
        return key


def _caller(key: Key, region: str) -> Caller:
    return Caller(key.id, key.account, region, key.role, key.session)
