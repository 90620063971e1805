"""Which service a request is for: one port serves all of them.

/endpoints/…          the runtime
X-Amz-Target          JSON services: sagemaker, application-autoscaling, monitoring, logs
smithy-protocol       refused: CBOR, which newer SDKs of other languages would rather speak
signed for another    refused by the service's name
POST / with a form    the query protocol: sts, monitoring
/metrics, /ping       the host's own pages
/offers/…             objects for other machines; the path is the permission
anything else         the object store
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.access.permissions import check_account, check_endpoints
from halimede.hosting.access.program_images import ProgramImageGate
from halimede.hosting.access.refusals import RefusedError, for_query, for_s3
from halimede.hosting.access.signature import claimed_service
from halimede.hosting.access.web_pages import Judgement, WebPageGuard
from halimede.hosting.api import json_protocol, other_services, query_protocol
from halimede.hosting.api.bodies import decoded
from halimede.hosting.api.digests import digest, target_of
from halimede.hosting.api.runtime import AsyncInvocations, Runtime
from halimede.hosting.api.services import Service
from halimede.hosting.api.tasks import RequestTasks
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from halimede.hosting.identity import Caller
from halimede.hosting.request_ids import new_request_id
from halimede.hosting.routing.invocations import PREFIX, Invocations
from halimede.http1.head import Head

_BODY_BYTES = 1 << 20
"""Largest request of the JSON and query protocols."""

_MAX_SHOWN = 128

_FOR_ALL = "sts:GetCallerIdentity"
"""No permission is needed for that."""

Page = Callable[[Request], None]
Offers = Callable[[Request], Coroutine[Any, Any, None]]

_OFFERS = "/offers/"
_S3 = "s3"


class _Kind(Enum):
    """Whose a request is."""

    PAGE = "one of the host's own pages"
    OFFER = "for an object that was offered"
    JSON = "a JSON service's"
    CBOR = "a service's that speaks CBOR"
    QUERY = "a service's of the query protocol"
    STORE = "the object store's"
    OTHER = "a service's that the host does not have"


class ObjectService(Protocol):
    """Answers requests to the object store, as S3 does."""

    async def handle(self, request: Request, caller: Caller, access: Key | None) -> None:
        """Answer a request of a caller who may come in."""

    def refuse(self, request: Request, error: ApiError) -> None:
        """Answer a request of a caller who may not come in."""


class Dispatcher:
    """Hands each request to its service. Lives on the event loop."""

    def __init__(
        self,
        gate: Gate,
        services: Iterable[Service],
        invocations: Invocations,
        s3: ObjectService | None,
        pages: Mapping[str, Page],
        guard: WebPageGuard,
        images: ProgramImageGate,
        denials: Denials,
        offers: Offers | None = None,
        asynchronous: AsyncInvocations | None = None,
    ) -> None:
        """A dispatcher.

        Args:
            gate: who may come in.
            services: those of the JSON and query protocols.
            invocations: the runtime.
            s3: the object store; None if there is none.
            pages: path → the host's own pages.
            guard: judges requests by the web pages that they come from.
            images: who may create models whose image is a program.
            denials: the log of requests that were denied.
            offers: answers requests for objects that were offered to other machines; None if none are.
            asynchronous: answers InvokeEndpointAsync; None if nobody does.
        """
        self._gate = gate
        self._web_pages = guard
        self._images = images
        self._denials = denials
        self._runtime = Runtime(gate, invocations, guard, denials, asynchronous)
        self._s3 = s3
        self._offers = offers
        self._pages = pages
        services = list(services)
        self._targets = {
            service.model.metadata["targetPrefix"]: service
            for service in services
            if "targetPrefix" in service.model.metadata
        }
        self._versions = {service.model.api_version: service for service in services}
        self._signed_for = sorted({service.model.signing_name for service in services})
        self._tasks = RequestTasks()

    def handle(self, request: Request) -> None:
        """Answer a request, now or later."""
        head = request.head
        if head.path.startswith(PREFIX):
            self._runtime.handle(request)
            return
        judgement = self._web_pages.judge(head, from_loopback=request.from_loopback)
        if judgement is not None and not self._passes(request, judgement):
            return
        kind = self._kind_of(head)
        if kind is _Kind.PAGE:
            self._pages[head.path](request)
        elif kind is _Kind.OFFER and self._offers is not None:
            self._tasks.begin(request, self._offers(request))
        elif kind is _Kind.JSON:
            self._tasks.begin(request, self._json(request))
        elif kind is _Kind.CBOR:
            msg = "Smithy RPC with CBOR is not available in this version; use AWS JSON 1.0 or the query protocol"
            error = ApiError("UnknownOperationException", msg, 404)
            json_protocol.answer_error(request, error, "1.0", new_request_id())
        elif kind is _Kind.QUERY:
            self._tasks.begin(request, self._query(request))
        elif kind is _Kind.OTHER:
            self._other(request)
        elif self._s3 is not None:
            self._tasks.begin(request, self._store(request))
        else:
            msg = f"there is nothing at {head.path}, and this host has no object store"
            request.respond(404, msg.encode(), (("Content-Type", "text/plain"),))

    def _kind_of(self, head: Head) -> _Kind:
        path = head.path
        if path in self._pages and head.method == "GET":
            return _Kind.PAGE
        if path.startswith(_OFFERS) and self._offers is not None and _may_be_offer(head):
            return _Kind.OFFER
        service = claimed_service(head.headers.get("authorization", ""))
        is_other = bool(service) and service not in self._signed_for
        if "x-amz-target" in head.headers:
            return _Kind.OTHER if is_other and self._service_of(head) is None else _Kind.JSON
        if "smithy-protocol" in head.headers:
            return _Kind.OTHER if is_other else _Kind.CBOR
        if path == "/" and head.method == "POST" and not head.query:
            return _Kind.OTHER if is_other else _Kind.QUERY
        return _Kind.STORE if service in ("", _S3) else _Kind.OTHER

    def _passes(self, request: Request, judgement: Judgement) -> bool:
        """Whether a request is to be served; otherwise it has been answered."""
        request.further = judgement.cors
        if judgement.preflight:
            request.respond(204)
        elif judgement.refusal is not None:
            self._denials.note(request, judgement.refusal)
            self._refuse(request, judgement.refusal)
        else:
            return True
        return False

    def _refuse(self, request: Request, error: RefusedError) -> None:
        """Answer as the service does that was asked."""
        head = request.head
        kind = self._kind_of(head)
        if kind is _Kind.JSON or kind is _Kind.CBOR:
            version = "1.0" if kind is _Kind.CBOR else _json_version(self._service_of(head))
            json_protocol.answer_error(request, error, version, new_request_id(), query=_speaks_query(head))
        elif kind is _Kind.QUERY:
            query_protocol.answer_error(request, for_query(error), new_request_id())
        elif kind is _Kind.STORE and self._s3 is not None:
            self._s3.refuse(request, for_s3(error))
        else:
            request.respond(error.status, error.message.encode(), (("Content-Type", "text/plain"),))

    def _note(self, request: Request, error: ApiError) -> None:
        """Log a request that was denied."""
        if error.status == 403 or isinstance(error, RefusedError):
            self._denials.note(request, error)

    def _service_of(self, head: Head) -> Service | None:
        """The JSON service that a request is for."""
        return self._targets.get(head.headers.get("x-amz-target", "").rpartition(".")[0])

    async def _json(self, request: Request) -> None:
        head = request.head
        prefix, _, name = head.headers["x-amz-target"].rpartition(".")
        service = self._service_of(head)
        version = _json_version(service)
        request_id = new_request_id()
        try:
            signed_for = self._signed_for if service is None else [service.model.signing_name]
            body, caller, key = await self._admitted(request, signed_for)
            if service is None:
                raise _unknown(prefix, self._targets)
            document = json_protocol.parse_document(decoded(head, body, _BODY_BYTES))
            answer = await self._run(request, service, name, document, caller, key)
        except ApiError as error:
            self._note(request, error)
            json_protocol.answer_error(request, error, version, request_id, query=_speaks_query(head))
            return
        json_protocol.answer(request, answer, version, request_id)

    async def _query(self, request: Request) -> None:
        request_id = new_request_id()
        try:
            body, caller, key = await self._admitted(request, self._signed_for)
            fields = query_protocol.parse_form(decoded(request.head, body, _BODY_BYTES))
            name, version = fields.pop("Action", ""), fields.pop("Version", "")
            service = self._versions.get(version)
            if not name or service is None:
                msg = f"there is no service with Action '{name[:_MAX_SHOWN]}' and Version '{version[:_MAX_SHOWN]}'"
                raise ApiError("InvalidAction", msg)
            if name not in service.model.operation_names:
                raise ApiError("InvalidAction", f"{name[:_MAX_SHOWN]} is no operation of {service.name}")
            model = service.model.operation_model(name)
            document = query_protocol.document_of(model.input_shape, fields)
            answer = await self._run(request, service, name, document, caller, key)
        except ApiError as error:
            self._note(request, error)
            query_protocol.answer_error(request, for_query(error), request_id)
            return
        namespace = service.model.metadata.get("xmlNamespace", "")
        query_protocol.answer(request, name, model, answer, namespace, request_id)

    def _other(self, request: Request) -> None:
        """Refuse a call of a service that the host does not have."""
        head = request.head
        service = claimed_service(head.headers["authorization"])
        try:
            self._gate.recognize(head)
            error = other_services.unavailable(head, service, {*self._signed_for, _S3})
        except ApiError as refusal:
            self._note(request, refusal)
            error = refusal
        other_services.answer_error(request, error, service, new_request_id())

    async def _admitted(
        self, request: Request, services: Collection[str]
    ) -> tuple[bytes, Caller, Key | None]:
        """A request's body and who sent it, if they may come in.

        Args:
            request: the client's.
            services: for which of them it may have been signed.

        Raises:
            ApiError: they may not, or the body is too large.
        """
        head = request.head
        self._gate.recognize(head)
        body = await request.read(_BODY_BYTES)
        hashed = await digest(body) if self._gate.verifies else None
        caller, key = self._gate.admit(head, target_of(head), hashed, services)
        return body, caller, key

    async def _store(self, request: Request) -> None:
        assert self._s3 is not None
        head = request.head
        try:
            caller, key = self._gate.admit(head, target_of(head), None, (_S3,))
        except ApiError as error:
            self._note(request, error)
            self._s3.refuse(request, for_s3(error))
            return
        await self._s3.handle(request, caller, key)

    async def _run(
        self,
        request: Request,
        service: Service,
        name: str,
        document: Mapping[str, Any],
        caller: Caller,
        key: Key | None,
    ) -> Mapping[str, Any]:
        """Run an operation if the caller's key lets it."""
        action = f"{service.name}:{name}"
        if key is not None and action != _FOR_ALL:
            key.check(action)
        checked = service.check(name, document)
        references = service.references(name, checked)
        check_account(caller, action, references, service.denial)
        if key is not None:
            check_endpoints(key, action, references)
            for endpoint in service.about(name, checked, caller):
                key.check(action, endpoint)
        self._images.check(action, checked, from_loopback=request.from_loopback)
        return await service.run(name, checked, replace(caller, is_local=request.from_loopback))

    async def close(self) -> None:
        """End what is under way."""
        await self._runtime.close()
        await self._tasks.close()


def _may_be_offer(head: Head) -> bool:
    """Whether it is no request of the object store for a bucket of that name, which would be signed."""
    return head.method in ("GET", "HEAD") and not head.query and "authorization" not in head.headers


def _json_version(service: Service | None) -> str:
    return "1.1" if service is None else str(service.model.metadata.get("jsonVersion", "1.1"))


def _speaks_query(head: Head) -> bool:
    """Whether a client of a JSON service expects the error codes of the query protocol too."""
    return head.headers.get("x-amzn-query-mode") == "true"


def _unknown(prefix: str, known: Iterable[str]) -> ApiError:
    msg = f"there is no service '{prefix[:_MAX_SHOWN]}' here; there are {', '.join(sorted(known))}"
    return ApiError("UnknownOperationException", msg)
