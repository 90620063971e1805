import subprocess
import sys

import boto3
import pytest

from halimede.sagemaker_sdk import HostSession, use_host

HOST = "http://127.0.0.1:8088"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> HostSession:
    """The default session of boto3, until the end of the test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", HOST)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    return use_host()


def test_default_session_is_one_for_the_host(session: HostSession) -> None:
    assert session is boto3.DEFAULT_SESSION
    assert boto3.client("sagemaker").meta.endpoint_url == HOST


@pytest.mark.parametrize(
    "named",
    ["https://sts.eu-central-1.amazonaws.com", "https://sts.cn-north-1.amazonaws.com.cn", None],
)
def test_address_of_amazon_leads_to_the_host(session: HostSession, named: str | None) -> None:
    assert session.client("sts", endpoint_url=named).meta.endpoint_url == HOST
    assert session.resource("s3", endpoint_url=named).meta.client.meta.endpoint_url == HOST


@pytest.mark.parametrize("named", ["http://127.0.0.1:9000", "https://amazonaws.com.example.org"])
def test_another_address_is_left_alone(session: HostSession, named: str) -> None:
    assert session.client("s3", endpoint_url=named).meta.endpoint_url == named


def test_variable_of_a_service_counts_more(session: HostSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    client = HostSession().client("sts", endpoint_url="https://sts.eu-central-1.amazonaws.com")
    assert client.meta.endpoint_url == "http://127.0.0.1:1"


def test_without_the_variable_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(
        RuntimeError, match="AWS_ENDPOINT_URL is not set; evaluate what `halimede host --print-env`"
    ):
        use_host()
    assert boto3.DEFAULT_SESSION is None


def test_neither_the_package_nor_the_module_needs_an_sdk() -> None:
    program = (
        "import sys; import halimede; assert 'boto3' not in sys.modules; import halimede.sagemaker_sdk; "
        "assert not any(name.startswith('sagemaker') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
