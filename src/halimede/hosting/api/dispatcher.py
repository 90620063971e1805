"""Which service a request is for: one port serves all of them.

/endpoints/…          the runtime
X-Amz-Target          JSON services: sagemaker, application-autoscaling, monitoring, logs
smithy-protocol       refused: CBOR, which newer SDKs of other languages would rather speak
POST / with a form    the query protocol: sts, monitoring
/metrics, /ping       the host's own pages
anything else         the object store
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from hashlib import sha256
from typing import Any, Protocol

from halimede.frontends.http.head import Head
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.access.permissions import check_account, check_endpoints
from halimede.hosting.access.refusals import for_query, for_s3
from halimede.hosting.api import json_protocol, query_protocol
from halimede.hosting.api.bodies import decoded
from halimede.hosting.api.invocation_heads import REFUSALS
from halimede.hosting.api.services import Service
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import DisconnectedError, Request
from halimede.hosting.identity import Caller, Scope
from halimede.hosting.request_ids import new_request_id
from halimede.hosting.routing.answers import answer_error as answer_runtime_error
from halimede.hosting.routing.heads import TARGET_MODEL
from halimede.hosting.routing.invocations import PREFIX, STREAMED, Invocations, operation_of

_BODY_BYTES = 1 << 20
"""Largest request of the JSON and query protocols."""

_HASHED_HERE_BYTES = 1 << 18
"""The hash of a longer body is computed on another thread."""

_MAX_SHOWN = 128

_FOR_ALL = "sts:GetCallerIdentity"
"""No permission is needed for that."""

Page = Callable[[Request], None]


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
        s3: ObjectService | None = None,
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        """A dispatcher.

        Args:
            gate: who may come in.
            services: those of the JSON and query protocols.
            invocations: the runtime.
            s3: the object store; None if there is none.
            pages: path → the host's own pages.
        """
        self._gate = gate
        self._invocations = invocations
        self._s3 = s3
        self._pages = pages or {}
        services = list(services)
        self._targets = {
            service.model.metadata["targetPrefix"]: service
            for service in services
            if "targetPrefix" in service.model.metadata
        }
        self._versions = {service.model.api_version: service for service in services}
        self._signed_for = sorted({service.model.signing_name for service in services})
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: Request) -> None:
        """Answer a request, now or later."""
        head = request.head
        path = head.path
        if path.startswith(PREFIX):
            if self._gate.verifies:
                self._later(request, self._invoke(request))
            else:
                self._invoke_now(request, self._gate.scope_of(head))
            return
        page = self._pages.get(path)
        if page is not None and head.method == "GET":
            page(request)
        elif "x-amz-target" in head.headers:
            self._later(request, self._json(request))
        elif "smithy-protocol" in head.headers:
            msg = "Smithy RPC with CBOR is not available in this version; use AWS JSON 1.0 or the query protocol"
            error = ApiError("UnknownOperationException", msg, 404)
            json_protocol.answer_error(request, error, "1.0", new_request_id())
        elif path == "/" and head.method == "POST" and not head.query:
            self._later(request, self._query(request))
        elif self._s3 is not None:
            self._later(request, self._store(request))
        else:
            msg = f"there is nothing at {path}, and this host has no object store"
            request.respond(404, msg.encode(), (("Content-Type", "text/plain"),))

    def _later(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except DisconnectedError:
            pass
        except Exception as error:  # of one request, which is no reason for others to suffer
            request.fail(error)

    async def _invoke(self, request: Request) -> None:
        """Let the runtime answer, once the signature, which covers the body, has been verified."""
        head = request.head
        try:
            self._gate.recognize(head)
            body = await request.read(self._invocations.payload_bytes)
            caller, key = self._gate.admit(head, _target(head), await _digest(body), ("sagemaker",))
            if key is not None:
                endpoint, operation = operation_of(head.path)
                action = "InvokeEndpointWithResponseStream" if operation == STREAMED else "InvokeEndpoint"
                key.check(f"sagemaker:{action}", endpoint, head.headers.get(TARGET_MODEL))
        except ApiError as error:
            answer_runtime_error(request, error)
            return
        self._invoke_now(request, caller.scope, body)

    def _invoke_now(self, request: Request, scope: Scope, body: bytes | None = None) -> None:
        refusal = REFUSALS[request.head]
        if refusal is None:
            self._invocations.handle(request, scope, body)
        else:
            answer_runtime_error(request, refusal)

    async def _json(self, request: Request) -> None:
        head = request.head
        prefix, _, name = head.headers["x-amz-target"].rpartition(".")
        service = self._targets.get(prefix)
        version = "1.1" if service is None else str(service.model.metadata.get("jsonVersion", "1.1"))
        query = head.headers.get("x-amzn-query-mode") == "true"
        request_id = new_request_id()
        try:
            signed_for = self._signed_for if service is None else [service.model.signing_name]
            body, caller, key = await self._admitted(request, signed_for)
            if service is None:
                raise _unknown(prefix, self._targets)
            document = json_protocol.parse_document(decoded(head, body, _BODY_BYTES))
            answer = await _run(service, name, document, caller, key)
        except ApiError as error:
            json_protocol.answer_error(request, error, version, request_id, query=query)
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
            answer = await _run(service, name, document, caller, key)
        except ApiError as error:
            query_protocol.answer_error(request, for_query(error), request_id)
            return
        namespace = service.model.metadata.get("xmlNamespace", "")
        query_protocol.answer(request, name, model, answer, namespace, request_id)

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
        digest = await _digest(body) if self._gate.verifies else None
        caller, key = self._gate.admit(head, _target(head), digest, services)
        return body, caller, key

    async def _store(self, request: Request) -> None:
        assert self._s3 is not None
        head = request.head
        try:
            caller, key = self._gate.admit(head, _target(head), None, ("s3",))
        except ApiError as error:
            self._s3.refuse(request, for_s3(error))
            return
        await self._s3.handle(request, caller, key)

    async def close(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _target(head: Head) -> str:
    return f"{head.path}?{head.query}" if head.query else head.path


async def _digest(body: bytes) -> str:
    """The SHA-256 of a body, in hexadecimal digits."""
    if len(body) <= _HASHED_HERE_BYTES:
        return sha256(body).hexdigest()
    return await asyncio.to_thread(lambda: sha256(body).hexdigest())


async def _run(
    service: Service, name: str, document: Mapping[str, Any], caller: Caller, key: Key | None
) -> Mapping[str, Any]:
    """Run an operation if the caller's key lets it."""
    action = f"{service.name}:{name}"
    if key is not None and action != _FOR_ALL:
        key.check(action)
    checked = service.check(name, document)
    check_account(caller, action, checked)
    if key is not None:
        check_endpoints(key, action, checked)
    return await service.run(name, checked, caller)


def _unknown(prefix: str, known: Iterable[str]) -> ApiError:
    msg = f"there is no service '{prefix[:_MAX_SHOWN]}' here; there are {', '.join(sorted(known))}"
    return ApiError("UnknownOperationException", msg)
