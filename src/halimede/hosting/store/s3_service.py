"""The object store as S3: REST with XML (the protocol of AWS's service of 2006-03-01)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from halimede.hosting.identity import Caller
from halimede.hosting.store import (
    bucket_operations,
    list_operations,
    object_operations,
    upload_operations,
)
from halimede.hosting.store.failures import no_such_bucket, not_implemented
from halimede.hosting.store.object_headers import OVERRIDES
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.s3_call import S3Call

_COPY = "x-amz-copy-source"
_IGNORED = frozenset(
    {"x-id", "AWSAccessKeyId", "Signature", "Expires", "content-type", "content-md5", "x-amz-security-token"}
) | {
    f"X-Amz-{name}"
    for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature", "Security-Token")
}
"""Parameters that change nothing here: a hint of newer SDKs, and what makes a URL presigned, which the gate reads."""

_LISTED = frozenset({"prefix", "delimiter", "encoding-type"})


@dataclass(frozen=True, slots=True)
class _Route:
    """An operation, and the requests that ask for it: those that have all that is needed, and no more than is known."""

    method: str
    operation: Callable[[ObjectStore, S3Call], Awaitable[None]]
    needed: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    copies: bool = field(default=False)


_SERVICE = (
    _Route(
        "GET",
        bucket_operations.list_buckets,
        known=frozenset({"prefix", "continuation-token", "max-buckets"}),
    ),
)
_BUCKET = (
    _Route("PUT", bucket_operations.create_bucket),
    _Route("HEAD", bucket_operations.head_bucket),
    _Route("DELETE", bucket_operations.delete_bucket),
    _Route("GET", bucket_operations.get_bucket_location, frozenset({"location"})),
    _Route(
        "GET",
        upload_operations.list_multipart_uploads,
        frozenset({"uploads"}),
        frozenset({"prefix", "encoding-type", "key-marker", "upload-id-marker", "max-uploads"}),
    ),
    _Route(
        "GET",
        list_operations.list_objects_v2,
        frozenset({"list-type"}),
        _LISTED | {"continuation-token", "start-after", "max-keys", "fetch-owner"},
    ),
    _Route("GET", list_operations.list_objects, known=_LISTED | {"marker", "max-keys"}),
    _Route("POST", object_operations.delete_objects, frozenset({"delete"})),
)
_PART = frozenset({"partNumber", "uploadId"})
_UPLOAD = frozenset({"uploadId"})
_OBJECT = (
    _Route("PUT", upload_operations.upload_part_copy, _PART, copies=True),
    _Route("PUT", upload_operations.upload_part, _PART),
    _Route("PUT", object_operations.copy_object, copies=True),
    _Route("PUT", object_operations.put_object),
    _Route("GET", upload_operations.list_parts, _UPLOAD, frozenset({"part-number-marker", "max-parts"})),
    _Route("GET", object_operations.get_object_tagging, frozenset({"tagging"})),
    _Route("GET", object_operations.get_object, known=OVERRIDES),
    _Route("HEAD", object_operations.head_object, known=OVERRIDES),
    _Route("DELETE", upload_operations.abort_multipart_upload, _UPLOAD),
    _Route("DELETE", object_operations.delete_object),
    _Route("POST", upload_operations.create_multipart_upload, frozenset({"uploads"})),
    _Route("POST", upload_operations.complete_multipart_upload, _UPLOAD),
)


class S3Service:
    """Answers S3's requests from a store."""

    def __init__(
        self,
        store: ObjectStore,
        domains: tuple[str, ...] = ("localhost",),
        denied: Callable[[Request, ApiError], None] | None = None,
    ) -> None:
        """A service.

        Args:
            store: where the objects are.
            domains: hosts below which the first label is a bucket, as in ``bucket.localhost`` (virtual-hosted style).
            denied: called with each request that is refused because its caller may not do it.
        """
        self._store = store
        self._domains = domains
        self._denied = denied

    async def handle(self, request: Request, caller: Caller, access: Key | None) -> None:
        """Answer a request.

        Args:
            request: the client's.
            caller: who sent it.
            access: the key whose signature of the headers has been verified; None if nobody asks.

        Raises:
            DisconnectedError: the client has gone before its request was complete.
        """
        call = S3Call(request, caller, access)
        try:
            call.locate(self._domains)
            operation = _operation(call)
            if operation is not bucket_operations.create_bucket:  # which says whether the name is taken
                self._check_owner(call)
            await operation(self._store, call)
        except ApiError as error:
            if error.status == 403 and self._denied is not None:
                self._denied(request, error)
            call.answer_error(error)

    def refuse(self, request: Request, error: ApiError) -> None:
        """Answer a request of a caller who may not come in."""
        S3Call(request, Caller(), None).answer_error(error)

    def _check_owner(self, call: S3Call) -> None:
        """Refuse a bucket that is not the caller's, or not of whom they expect.

        Raises:
            ApiError: it is so (``AccessDenied``), or there is no such bucket.
        """
        if not call.bucket:
            return
        owner = self._store.owner(call.bucket)
        call.check_owner(call.bucket, owner)
        expected = call.headers.get("x-amz-expected-bucket-owner")
        if expected is not None:
            if owner is None:
                raise no_such_bucket(call.bucket)
            if owner != expected:
                msg = (
                    f"Access Denied: bucket '{call.bucket}' does not belong to the expected owner {expected}"
                )
                raise ApiError("AccessDenied", msg, 403)


def _operation(call: S3Call) -> Callable[[ObjectStore, S3Call], Awaitable[None]]:
    """The operation that a request asks for.

    Raises:
        ApiError: it is none of this store (``NotImplemented``), or there is none such (``MethodNotAllowed``).
    """
    routes = _OBJECT if call.object_key else _BUCKET if call.bucket else _SERVICE
    names = set(call.parameters) - _IGNORED
    if call.parameters.get("versionId") == "null":
        names.discard("versionId")
    copies = _COPY in call.headers
    fitting = [route for route in routes if route.method == call.request.head.method]
    if not fitting:
        msg = f"The specified method is not allowed against this resource: {call.request.head.method}"
        raise ApiError("MethodNotAllowed", msg, 405)
    for route in fitting:
        if route.needed <= names and names <= route.needed | route.known and route.copies <= copies:
            return route.operation
    known = frozenset().union(*(route.needed | route.known for route in fitting))
    unknown = sorted(names - known) or sorted(names)
    level = "objects" if call.object_key else "buckets"
    raise not_implemented(f"{call.request.head.method} of {level} with the parameter '{', '.join(unknown)}'")
