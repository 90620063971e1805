"""What a request names: keys may act on some endpoints only, and on nothing of another account."""

from halimede.hosting.access.keys import Key
from halimede.hosting.access.references import References
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Caller

_MAX_SHOWN = 256


def check_endpoints(key: Key, action: str, references: References) -> None:
    """Refuse a request that names an endpoint which the key may not act on.

    Args:
        key: the caller's.
        action: such as ``sagemaker:DescribeEndpoint``.
        references: what the request names.

    Raises:
        ApiError: it does (``AccessDeniedException``).
    """
    for endpoint in references.endpoints:
        key.check(action, endpoint)


def check_account(
    caller: Caller, action: str, references: References, code: str = "AccessDeniedException"
) -> None:
    """Refuse a request that names something of another account, or a log group of another region.

    Args:
        caller: who sent it.
        action: such as ``sagemaker:DescribeEndpoint``.
        references: what the request names.
        code: of the error for something of another account.

    Raises:
        ApiError: it does (`code`, ``ResourceNotFoundException``).
    """
    for arn in references.arns:
        if arn.account != caller.account:
            raise _denied(caller, action, arn.text, code)
        if arn.service == "logs" and arn.region != caller.region:
            msg = f"The specified log group does not exist: '{arn.text}' is of region {arn.region}, not {caller.region}"
            raise ApiError("ResourceNotFoundException", msg)
    for account in references.accounts:
        if account != caller.account:
            raise _denied(caller, action, f"account {account}", code)


def _denied(caller: Caller, action: str, resource: str, code: str) -> ApiError:
    msg = (
        f"User: {caller.arn} is not authorized to perform: {action} on resource: {resource[:_MAX_SHOWN]} because no "
        f"resource-based policy allows the {action} action"
    )
    return ApiError(code, msg, 403)
