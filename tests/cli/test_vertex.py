"""What the variables of a Vertex AI container say of the flags."""

import click
import pytest

from halimede.cli.vertex import with_vertex_defaults

MODE = {"AIP_MODE": "PREDICTION"}
PREDICTION = {"allow_vertex_ai": True, "allow_http": False, "allow_grpc": False}


def test_without_variables_the_flags_are_as_given() -> None:
    assert with_vertex_defaults({"http_port": 1}, {}) == {"http_port": 1}


def test_predictions_are_served_alone() -> None:
    assert with_vertex_defaults({}, MODE) == PREDICTION
    assert with_vertex_defaults({}, {"AIP_MODE": "prediction"}) == {}


def test_flags_come_before_the_environment() -> None:
    environment = {**MODE, "AIP_HTTP_PORT": "81", "AIP_STORAGE_URI": "gs://b"}
    given = {"allow_http": True, "vertex_ai_port": 82, "model_repository": ("/models",)}
    assert with_vertex_defaults(given, environment) == {**PREDICTION, **given}
    off = {"allow_vertex_ai": False}
    assert with_vertex_defaults(off, environment) == off


def test_port_and_repository_come_from_the_environment() -> None:
    environment = {"AIP_HTTP_PORT": "81", "AIP_STORAGE_URI": "/models"}
    on = {"allow_vertex_ai": True}
    assert with_vertex_defaults(on, environment) == {
        **on,
        "vertex_ai_port": 81,
        "model_repository": ("/models",),
    }
    assert with_vertex_defaults({}, environment) == {}


@pytest.mark.parametrize(
    ("text", "why"), [("x", "'x' is not a whole number"), ("65536", "65536 is out of range")]
)
def test_a_port_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(click.UsageError, match=f"AIP_HTTP_PORT: {why}"):
        with_vertex_defaults({}, {**MODE, "AIP_HTTP_PORT": text})
