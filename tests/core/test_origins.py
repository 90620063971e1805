import socket

import pytest

from halimede.core.origins import OriginPolicy, host_name, is_loopback


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_peers_on_this_machine(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "unknown"])
def test_peers_elsewhere(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8000", "localhost"),
        (" LocalHost. ", "localhost"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("a.example:port", "a.example:port"),
        ("", ""),
    ],
)
def test_names_in_host_headers(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8000", "bucket.localhost:9", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3"),
        *(socket.gethostname(), f"{socket.gethostname().upper()}:8000", "server.example", "SERVER.example:1"),
    ],
)
def test_hosts_of_this_machine(host: str) -> None:
    assert OriginPolicy(hosts=["server.example"]).knows_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evillocalhost",
        "",
        "a b",
        "[evil]:1",
        "::g",
    ],
)
def test_other_hosts(host: str) -> None:
    assert not OriginPolicy(hosts=["server.example"]).knows_host(host)
    assert OriginPolicy(hosts=["*"]).knows_host(host)


def test_only_origins_that_are_named_are_allowed() -> None:
    policy = OriginPolicy(origins=["https://App.example/", "null"])
    assert policy.allows_origin("https://app.example")
    assert policy.allows_origin("null")
    for other in (
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "",
        "*",
    ):
        assert not policy.allows_origin(other)
    assert OriginPolicy(origins=["*"]).allows_origin("http://evil.example")
    assert not OriginPolicy().allows_origin("http://localhost")


def test_pages_of_the_server_itself() -> None:
    policy = OriginPolicy()
    assert policy.is_own("http://localhost:8000", "localhost:8000")
    assert not policy.is_own("http://localhost:3000", "localhost:8000")
    assert not policy.is_own("http://evil.example", "evil.example"), "DNS rebinding"
    assert not policy.is_own("null", "null")
