"""One request to the object store: what it is about, and how it is answered."""

from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, unquote_to_bytes

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request, response_head
from halimede.hosting.identity import Caller
from halimede.hosting.request_ids import new_request_id
from halimede.hosting.store import s3_xml
from halimede.hosting.store.failures import invalid_argument, other_account

_KEY_BYTES = 1024
_XML = ("Content-Type", "application/xml")


class S3Call:
    """A request.

    Attributes:
        request: as it came.
        headers: its headers, by lower-case name.
        bucket: the bucket's name, "" for none.
        object_key: the object's key, "" for none.
        parameters: those of the query.
        caller: who sent it.
        access: what they may do; None for anything.
        id: the request's.
    """

    __slots__ = ("access", "bucket", "caller", "headers", "id", "object_key", "parameters", "request")

    def __init__(self, request: Request, caller: Caller, access: Key | None) -> None:
        """A call; `locate` tells what it is about.

        Args:
            request: as it came.
            caller: who sent it.
            access: what they may do; None for anything.
        """
        self.request = request
        self.headers: Mapping[str, str] = request.head.headers
        self.caller = caller
        self.access = access
        self.id = new_request_id()
        self.bucket = self.object_key = ""
        self.parameters: Mapping[str, str] = {}

    def locate(self, domains: Iterable[str]) -> None:
        """Find out which bucket and object it is about.

        Args:
            domains: hosts below which the first label is a bucket (virtual-hosted style).

        Raises:
            ApiError: it cannot be understood (``InvalidURI``, ``KeyTooLongError``).
        """
        head = self.request.head
        path = head.path[1:]
        bucket = _bucket_of_host(self.headers.get("host", ""), domains)
        if not bucket:
            bucket, _, path = path.partition("/")
        self.bucket, self.object_key = decode(bucket), decode(path)
        if len(self.object_key.encode()) > _KEY_BYTES:
            raise ApiError("KeyTooLongError", f"Your key is too long: at most {_KEY_BYTES} bytes are allowed")
        try:
            pairs = parse_qsl(head.query, keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError as error:
            raise ApiError("InvalidURI", f"Couldn't parse the specified URI's query: {error}") from None
        self.parameters = dict(pairs)

    def check(self, action: str) -> None:
        """Refuse what the caller may not do.

        Args:
            action: such as ``s3:GetObject``.

        Raises:
            ApiError: they may not (``AccessDenied``).
        """
        if self.access is not None:
            try:
                self.access.check(action)
            except ApiError as error:
                raise ApiError("AccessDenied", error.message, 403) from None

    def check_owner(self, bucket: str, owner: str | None) -> None:
        """Refuse a bucket of another account.

        Args:
            bucket: its name.
            owner: the account whose it is; None if there is none.

        Raises:
            ApiError: it is one (``AccessDenied``).
        """
        if owner is not None and owner != self.caller.account:
            raise other_account(bucket)

    def number(self, name: str, usual: int, most: int) -> int:
        """A number of the query, at most `most`.

        Raises:
            ApiError: it is none (``InvalidArgument``).
        """
        text = self.parameters.get(name)
        if not text:
            return usual
        if not (text.isascii() and text.isdigit()) or len(text) > 10:
            raise invalid_argument(f"{name} must be a whole number from 0 to 2147483647, got '{text}'")
        return min(int(text), most)

    def answer(self, status: int = 200, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        """Give the answer."""
        self.request.respond(status, body, (*headers, ("x-amz-request-id", self.id)))

    def answer_head(self, status: int, length: int, headers: Iterable[tuple[str, str]]) -> None:
        """Answer with the head only that a body of so many bytes would have."""
        self.request.begin(response_head(status, (*headers, ("Content-Length", str(length)))))
        self.request.end()

    def answer_xml(
        self, root: str, content: str | Iterable[s3_xml.Element], headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Give a document as the answer."""
        self.answer(200, s3_xml.DECLARATION + s3_xml.element(root, content), (*headers, _XML))

    def answer_error(self, error: ApiError) -> None:
        """Answer with an error."""
        body = b"" if error.status == 304 else s3_xml.DECLARATION + self.error_element(error)
        fields = [(name, str(value)) for name, value in error.fields.items()]
        self.answer(error.status, body, (*fields, _XML))

    def error_element(self, error: ApiError) -> bytes:
        """An error as an element of XML."""
        content = [
            ("Code", error.code),
            ("Message", error.message),
            ("Resource", self.request.head.path),
            ("RequestId", self.id),
        ]
        return s3_xml.element("Error", content, namespace="")


def decode(text: str) -> str:
    """A text whose bytes are percent-encoded UTF-8.

    Raises:
        ApiError: it is not (``InvalidURI``).
    """
    try:
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise ApiError("InvalidURI", f"Couldn't parse the specified URI: '{text}' is not UTF-8") from None


def _bucket_of_host(host: str, domains: Iterable[str]) -> str:
    name = host.partition(":")[0].lower()
    for domain in domains:
        if name.endswith("." + domain):
            return name[: -len(domain) - 1]
    return ""
