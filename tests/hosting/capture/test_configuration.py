"""`DataCaptureConfig`: what variants get of it, and how it is described."""

from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.specs import DataCapture
from tests.hosting.capture.spools import ENDPOINT, Counted, Spool, variant
from tests.hosting.control.fakes import World, on_loop
from tests.hosting.control.fakes import variant as variant_document

CONFIG = {
    "EnableCapture": True,
    "InitialSamplingPercentage": 30,
    "DestinationS3Uri": "s3://bucket/prefix",
    "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    "CaptureContentTypeHeader": {"CsvContentTypes": ["text/CSV"], "JsonContentTypes": ["application/json"]},
}


@pytest.mark.parametrize(
    ("further", "expected"),
    [
        (
            {},
            DataCapture("s3://bucket/prefix", 30, True, True, ("text/csv",), ("application/json",)),
        ),
        ({"EnableCapture": False}, None),
        ({"InitialSamplingPercentage": 0}, None),
        (
            {"CaptureOptions": [{"CaptureMode": "Output"}], "CaptureContentTypeHeader": {}},
            DataCapture("s3://bucket/prefix", 30, inputs=False, outputs=True),
        ),
        (
            {"CaptureOptions": [{"CaptureMode": "InputAndOutput"}], "CaptureContentTypeHeader": {}},
            DataCapture("s3://bucket/prefix", 30),
        ),
    ],
)
def test_what_a_variant_is_told(further: dict[str, Any], expected: DataCapture | None) -> None:
    """Without EnableCapture it is enabled."""
    assert DataCapture.from_document({**CONFIG, **further}) == expected
    assert DataCapture.from_document({**CONFIG, "EnableCapture": True}) == DataCapture.from_document(
        {name: value for name, value in CONFIG.items() if name != "EnableCapture"}
    )
    assert DataCapture.from_document({}) is None


@pytest.mark.parametrize(
    "content_type", ["text/csv", "Text/CSV", "text/csv; charset=utf-8", "text/csv ;header=absent"]
)
def test_letter_case_and_parameters_of_a_content_type_do_not_matter(content_type: str) -> None:
    named = {"CaptureContentTypeHeader": {"CsvContentTypes": ["TEXT/csv; header=present"]}}
    capture = DataCapture.from_document({**CONFIG, **named})
    assert capture is not None
    assert capture.encoding(content_type) == "CSV"


@on_loop
async def test_a_variant_without_capture_has_no_observer(tmp_path: Path) -> None:
    """Its invocations cost nothing more."""
    spool = Spool(tmp_path)
    assert spool.writer.observers(ENDPOINT, variant(None), Counted()) == ()
    assert len(spool.writer.observers(ENDPOINT, variant(), Counted())) == 1
    await spool.writer.close()


@on_loop
async def test_an_endpoint_tells_what_is_captured(tmp_path: Path) -> None:
    """It is stopped if there is no room for more; another configuration has its own."""
    async with World(tmp_path) as world:
        await world.create_model()
        await world.create_config("c", variant_document("A"), variant_document("B"), DataCaptureConfig=CONFIG)
        await world.create_config("off", DataCaptureConfig={**CONFIG, "EnableCapture": False})
        await world.create_config("none")
        await world.create_endpoint()
        described = await world.describe()
        assert described["DataCaptureConfig"] == {
            "EnableCapture": True,
            "CaptureStatus": "Started",
            "CurrentSamplingPercentage": 30,
            "DestinationS3Uri": "s3://bucket/prefix",
            "KmsKeyId": "",
        }
        assert [each.capture for each in world.observed] == [DataCapture.from_document(CONFIG)] * 2
        world.is_capture_stopped = True
        assert (await world.describe())["DataCaptureConfig"]["CaptureStatus"] == "Stopped"
        world.is_capture_stopped = False
        retained = {
            "RetainAllVariantProperties": True,
            "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DataCaptureConfig"}],
        }
        for further in ({}, retained, {"RetainAllVariantProperties": True}):
            await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="off", **further)
            capture = (await world.describe())["DataCaptureConfig"]
            assert (capture["EnableCapture"], capture["CaptureStatus"]) == (False, "Stopped")
            assert world.observed[-1].capture is None
        await world.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="none")
        assert "DataCaptureConfig" not in await world.describe()


def test_the_share_of_memory_of_a_router_is_enough_for_a_record() -> None:
    """However many there are."""
    settings = CaptureSettings()
    shared = settings.shared(64)
    assert shared.memory_bytes == settings.record_bytes
