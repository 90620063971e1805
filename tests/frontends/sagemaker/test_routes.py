"""Which call a path and a method mean."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.frontends.sagemaker.routes import Call, find_route


def meant(method: str, path: str) -> tuple[Call | None, str]:
    route = find_route(path)
    return route.calls.get(method), route.name


@pytest.mark.parametrize(
    ("method", "path", "call", "name"),
    [
        ("GET", "/ping", Call.PING, ""),
        ("POST", "/invocations", Call.INVOCATIONS, ""),
        ("GET", "/models", Call.LIST, ""),
        ("GET", "/models/", Call.LIST, ""),
        ("POST", "/models", Call.LOAD, ""),
        ("POST", "/models/anything", Call.LOAD, "anything"),
        ("GET", "/models/m", Call.GET, "m"),
        ("GET", "/models/m/invoke", Call.GET, "m"),
        ("POST", "/models/m/invoke", Call.INVOKE, "m"),
        ("POST", "/models/invoke/invoke", Call.INVOKE, "invoke"),
        ("POST", "/models//invoke", Call.INVOKE, ""),
        ("DELETE", "/models/m", Call.UNLOAD, "m"),
        ("DELETE", "/models", Call.UNLOAD, ""),
        ("POST", "/modelsm/invoke", Call.INVOKE, "m"),
        ("GET", "/models/company_a%2Fm.tar.gz", Call.GET, "company_a/m.tar.gz"),
    ],
)
def test_calls(method: str, path: str, call: Call, name: str) -> None:
    assert meant(method, path) == (call, name)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/ping", 405),
        ("GET", "/invocations", 405),
        ("PUT", "/models", 400),
        ("PUT", "/models/m", 400),
        ("PATCH", "/models/m/invoke", 400),
        ("GET", "/", 400),
        ("GET", "/ping/", 400),
        ("POST", "/models/a/b", 400),
        ("GET", "/models/a/", 400),
        ("POST", "/v2/models/m/infer", 400),
    ],
)
def test_what_is_no_call(method: str, path: str, status: int) -> None:
    route = find_route(path)
    assert (route.calls.get(method), route.other) == (None, status)


@given(st.text(min_size=1))
def test_any_name_can_be_in_a_path(name: str) -> None:
    encoded = quote(name, safe="")
    assert meant("POST", f"/models/{encoded}/invoke") == (Call.INVOKE, name)
    assert meant("DELETE", f"/models/{encoded}") == (Call.UNLOAD, name)


def test_a_name_that_is_not_utf_8_is_no_other_name() -> None:
    assert find_route("/models/%ff").name != find_route("/models/%fe").name
    assert not find_route("/models/%ff").name.isprintable()


@given(st.text("%2Ff50c3bc.a\xc3\xbc\xff", min_size=1))
def test_any_encoding_is_decoded_once(encoded: str) -> None:
    call, name = meant("POST", f"/models/{encoded}/invoke")
    assert call is Call.INVOKE
    if "%" not in encoded and encoded.isascii():
        assert name == encoded
    assert meant("POST", f"/models/{quote(name.encode('utf-8', 'surrogateescape'), safe='')}/invoke") == (
        call,
        name,
    )
