import subprocess
import sys
from collections.abc import Callable
from typing import Any

import boto3
import botocore.session
import pytest

from halimede.sagemaker_sdk import use_host

HOST = "http://127.0.0.1:8088"
STS = "https://sts.eu-central-1.amazonaws.com"

# as programs get their sessions, before and after `use_host`
SESSIONS: dict[str, Callable[[], Any]] = {
    "the default session": lambda: boto3,
    "boto3.Session": lambda: boto3.Session(),
    "boto3.session.Session": lambda: boto3.session.Session(region_name="us-west-2"),
    "a session of a class of one's own": lambda: type("Own", (boto3.Session,), {})(),
    "a session over one of botocore": lambda: boto3.Session(botocore_session=botocore.session.get_session()),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 as it is after its import; what `use_host` changes is undone after the test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", HOST)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    make = botocore.session.Session.create_client
    monkeypatch.setattr(botocore.session.Session, "create_client", make)


def test_default_session_is_one_for_the_host() -> None:
    assert use_host() is boto3.DEFAULT_SESSION
    assert boto3.client("sagemaker").meta.endpoint_url == HOST


def test_settings_of_a_default_session_stay() -> None:
    boto3.setup_default_session(region_name="us-west-2")
    assert use_host().region_name == "us-west-2"


@pytest.mark.parametrize("made", ["before", "after", "twice"])
@pytest.mark.parametrize("how", SESSIONS)
def test_every_session_leads_to_the_host(how: str, made: str) -> None:
    if made == "before":
        session = SESSIONS[how]()
        use_host()
    else:
        use_host()
        if made == "twice":
            use_host()
        session = SESSIONS[how]()
    assert session.client("sts", endpoint_url=STS).meta.endpoint_url == HOST


@pytest.mark.parametrize("named", [STS, "https://sts.cn-north-1.amazonaws.com.cn", None])
def test_address_of_amazon_leads_to_the_host(named: str | None) -> None:
    session = use_host()
    assert session.client("sts", endpoint_url=named).meta.endpoint_url == HOST
    assert session.resource("s3", endpoint_url=named).meta.client.meta.endpoint_url == HOST


def test_client_of_botocore_leads_to_the_host() -> None:
    use_host()
    client = botocore.session.get_session().create_client("sts", "eu-central-1", endpoint_url=STS)
    assert client.meta.endpoint_url == HOST


@pytest.mark.parametrize("named", ["http://127.0.0.1:9000", "https://amazonaws.com.example.org"])
def test_another_address_is_left_alone(named: str) -> None:
    use_host()
    assert boto3.Session().client("s3", endpoint_url=named).meta.endpoint_url == named


def test_variable_of_a_service_counts_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    client = use_host().client("sts", endpoint_url=STS)
    assert client.meta.endpoint_url == "http://127.0.0.1:1"


def test_without_the_variable_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    with pytest.raises(
        RuntimeError, match="AWS_ENDPOINT_URL is not set; evaluate what `halimede host --print-env`"
    ):
        use_host()
    assert boto3.DEFAULT_SESSION is None
    assert boto3.client("sts", endpoint_url=STS).meta.endpoint_url == STS


def test_neither_the_package_nor_the_module_needs_an_sdk() -> None:
    program = (
        "import sys; import halimede; assert 'boto3' not in sys.modules; import halimede.sagemaker_sdk; "
        "assert not any(name.startswith('sagemaker') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
