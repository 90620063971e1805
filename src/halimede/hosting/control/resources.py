"""Models and endpoint configurations: made once, never changed, and gone at once."""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from halimede.hosting.control.database import Database, Document, DocumentKey
from halimede.hosting.control.listing import page_of
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller, Scope


class Resources:
    """All resources of one kind, told apart by account, region and name.

    Args:
        database: where they are kept.
        kind: what an ARN calls the kind, such as ``endpoint-config``.
        words: what error texts call it, such as ``endpoint configuration``.
        member: the member of requests that holds the name, such as ``EndpointConfigName``.
        arn_member: the one that holds the ARN.
        complete: adds to a Create request what it left out and Describe shows.
    """

    def __init__(
        self,
        database: Database,
        kind: str,
        words: str,
        member: str,
        arn_member: str,
        complete: Callable[[Mapping[str, Any]], dict[str, Any]],
    ) -> None:
        self._database = database
        self._kind = kind
        self._words = words
        self._member = member
        self._arn_member = arn_member
        self._complete = complete
        self._documents: dict[Scope, dict[str, Document]] = {}

    async def open(self) -> None:
        """Read what is there."""
        for key, document in (await self._database.documents(self._kind)).items():
            self._of(key.scope)[key.name] = document

    def _of(self, scope: Scope) -> dict[str, Document]:
        return self._documents.setdefault(scope, {})

    def arns(self, scope: Scope) -> set[str]:
        """The ARNs of those of an account and region."""
        return {document["arn"] for document in self._of(scope).values()}

    def find(self, name: str, caller: Caller) -> dict[str, Any]:
        """The request that made the resource.

        Raises:
            ApiError: there is none of that name.
        """
        document = self._of(caller.scope).get(name)
        if document is None:
            raise self._missing(name, caller)
        request: dict[str, Any] = document["request"]
        return request

    def _missing(self, name: str, caller: Caller) -> ApiError:
        return invalid(f'Could not find {self._words} "{caller.scope.arn(self._kind, name)}".')

    async def create(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Keep what a Create request asks for.

        Raises:
            ApiError: there is one of that name.
        """
        name = request[self._member]
        scope = caller.scope
        arn, documents = scope.arn(self._kind, name), self._of(scope)
        if is_taken(name, documents):
            raise invalid(f'Cannot create already existing {self._words} "{arn}".')
        tags = tags_of(request)
        body = {key: value for key, value in request.items() if key != "Tags"}
        document = {"request": body, "arn": arn, "created": time.time()}
        documents[name] = document
        try:
            key = DocumentKey(self._kind, *scope, name)
            await self._database.add(key, document, arn, tags)
        except ApiError:
            del documents[name]
            raise
        return {self._arn_member: arn}

    async def describe(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """The resource, as it was asked for, with AWS's defaults for what was left out."""
        name = request[self._member]
        body = self._complete(self.find(name, caller))
        document = self._of(caller.scope)[name]
        return {**body, self._arn_member: document["arn"], "CreationTime": _time(document)}

    async def delete(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Forget the resource; endpoints that were made from it go on."""
        name = request[self._member]
        documents = self._of(caller.scope)
        document = documents.pop(name, None)
        if document is None:
            raise self._missing(name, caller)
        try:
            await self._database.remove(DocumentKey(self._kind, *caller.scope, name), document["arn"])
        except ApiError:
            documents[name] = document
            raise
        return {}

    async def list(self, request: Mapping[str, Any], caller: Caller, key: str) -> dict[str, Any]:
        """A page of the caller's, below `key`."""
        entries = [
            {self._member: name, self._arn_member: document["arn"], "CreationTime": _time(document)}
            for name, document in self._of(caller.scope).items()
        ]
        return page_of(entries, request, self._member, key)


def is_taken(name: str, names: Iterable[str]) -> bool:
    """Whether there is a resource of that name: ARNs do not tell names apart by the case of their letters."""
    lower = name.lower()
    return any(each.lower() == lower for each in names)


def tags_of(request: Mapping[str, Any]) -> dict[str, str]:
    """The tags that a request has, by key.

    Raises:
        ApiError: a key is AWS's own, or there twice.
    """
    tags: dict[str, str] = {}
    for tag in request.get("Tags", ()):
        key = tag["Key"]
        if key.lower().startswith("aws:"):
            raise invalid(f"aws: prefixed tag key names are not allowed for external use: '{key}'")
        if key in tags:
            raise invalid(f"Duplicate tag keys found: '{key}'; each key may be given once")
        tags[key] = tag["Value"]
    return tags


def _time(document: Document) -> datetime:
    return datetime.fromtimestamp(document["created"], UTC)
