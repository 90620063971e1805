"""Which requests over HTTP are refused for want of a bearer token.

A request is looked at as soon as its head is there, before any of its body, and once only for the heads that a
connection repeats.
"""

from collections.abc import Callable

from halimede.frontends.tokens import MISSING, Tokens
from halimede.http1.head import Head, Refusal

GroupOf = Callable[[Head], str]
"""The group of calls that a request is of; "" for none."""


class BearerCheck:
    """The rule for one front end.

    Args:
        tokens: those that are valid, and which groups of calls need one.
        group_of: what a request asks for.
    """

    def __init__(self, tokens: Tokens, group_of: GroupOf) -> None:
        self._tokens = tokens
        self._group_of = group_of

    def check(self, head: Head) -> None:
        """Nothing, if the request may be served.

        Raises:
            Refusal: it needs a token, or another one.
        """
        refusal = self._tokens.refusal(self._group_of(head), head.headers.get("authorization"))
        if refusal:
            scheme = "Bearer" if refusal == MISSING else 'Bearer error="invalid_token"'
            raise Refusal(401, refusal, (("WWW-Authenticate", scheme),), head)
