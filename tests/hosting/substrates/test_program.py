"""The variables of an instance."""

from collections.abc import Mapping

import pytest

from halimede.hosting.substrates.program import environment_of
from tests.hosting.substrates.instances import request_for

PLATFORM = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:8088",
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "ASIA",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token",
}


def of(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of AWS that an instance gets whose container has some of its own."""
    request = request_for("program", environment=variables)
    every = environment_of(request, "127.0.0.1", 8080, (), PLATFORM, own=False)
    return {name: value for name, value in every.items() if name.startswith("AWS_")}


def test_the_platform_s_variables_are_there() -> None:
    assert of({}) == PLATFORM


def test_the_container_s_own_take_their_places() -> None:
    assert of({"AWS_REGION": "us-east-1"}) == {**PLATFORM, "AWS_REGION": "us-east-1"}


@pytest.mark.parametrize(
    "own",
    [
        {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "own"},
        {"AWS_PROFILE": "own"},
    ],
)
def test_credentials_of_the_container_s_own_are_not_mixed_with_others(own: dict[str, str]) -> None:
    others = {name: PLATFORM[name] for name in ("AWS_ENDPOINT_URL", "AWS_REGION")}
    assert of(own) == {**others, **own}


def test_the_host_s_own_credentials_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLATFORM:
        monkeypatch.setenv(name, "of the host")
    assert of({}) == PLATFORM
