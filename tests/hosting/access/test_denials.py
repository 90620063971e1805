"""The log of denied requests."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import INTERVAL_S, LINES, Denials
from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.http.request import Request
from tests.frontends.http.serving import post
from tests.hosting.api.serving import ACCESS_KEY, SECRET, ApiHost, api_host
from tests.hosting.http.serving import get, serve

TARGET = "X-Amz-Target: SageMaker.CreateModel"
LISTENING = Key(ACCESS_KEY, SECRET, actions=("sagemaker:List*",))


@pytest.fixture
def host() -> Iterator[ApiHost]:
    with api_host({ACCESS_KEY: LISTENING}, policy=OriginPolicy(["test"])) as running:
        yield running


def test_why_a_request_was_denied_is_logged(host: ApiHost) -> None:
    with host.raw() as client:
        assert client.ask(post(b"{}", "/", TARGET)).status == 403
        address, port = client.socket.getsockname()
        assert client.ask(post(b"{}", "/", TARGET, "Origin: http://evil.example")).status == 403
        assert client.ask(post(b"{}", "/models/a?X-Amz-Signature=abc")).status in {400, 403}
    lead = f"of {address}:{port}: "
    assert host.warnings[0].startswith(
        f"denied: POST / SageMaker.CreateModel {lead}MissingAuthenticationTokenException: "
    )
    assert host.warnings[1].startswith(
        f"denied: POST / SageMaker.CreateModel {lead}AccessDeniedException: the request"
    )
    assert "abc" not in "".join(host.warnings)


def test_missing_permissions_are_logged(host: ApiHost) -> None:
    with pytest.raises(Exception, match="not authorized"):
        host.client("sagemaker").create_model(ModelName="m", PrimaryContainer={"Image": "halimede"})
    [line] = host.warnings
    assert (
        f"AccessDeniedException: access key {ACCESS_KEY} is not authorized to perform: sagemaker:CreateModel"
        in line
    )
    assert SECRET not in line


def test_wrong_signatures_are_logged_without_the_secret(host: ApiHost) -> None:
    with pytest.raises(Exception, match="signature"):
        host.client("sagemaker", aws_secret_access_key="another-secret").list_endpoints()
    [line] = host.warnings
    assert "InvalidSignatureException: The request signature we calculated does not match" in line
    assert SECRET not in line
    assert "another-secret" not in line


def test_what_may_be_a_secret_is_not_repeated(host: ApiHost) -> None:
    with host.raw() as client:
        answer = client.ask(post(b"{}", "/", TARGET, "Authorization: hunter2secret"))
    assert answer.status == 403
    [line] = host.warnings
    assert "The kind of the Authorization header is not supported; use AWS4-HMAC-SHA256" in line
    assert "hunter2secret" not in line + answer.body.decode()


def test_keys_are_shown_without_their_secrets() -> None:
    key = Key("AKID", "hunter2secret", token="hunter2token")
    assert "hunter2" not in repr(key)


def test_a_flood_of_denied_requests_writes_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []

    def later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        timers.append((seconds, call))
        return asyncio.TimerHandle(0.0, call, (), asyncio.get_running_loop())

    log: list[Denials] = []

    def deny(request: Request) -> None:
        if not log:
            log.append(Denials(later))
        log[0].note(request, ApiError("AccessDenied", "x" * 5000, 403))
        request.respond(403)

    with serve(deny) as served, served.client() as client:
        for _ in range(LINES + 7):
            assert client.ask(get("/" + "p" * 1000), "GET").status == 403
        assert len(caplog.messages) == LINES
        assert max(map(len, caplog.messages)) < 700
        [(seconds, call)] = timers
        assert seconds == INTERVAL_S
        served.loop.call(call)
        assert caplog.messages[-1] == "denied: 7 more requests within the last second"
        assert client.ask(get("/"), "GET").status == 403
        assert len(caplog.messages) == LINES + 2
        assert len(timers) == 2
