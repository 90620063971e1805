"""Models whose image is the path of a program: who may create them."""

import json
import re
import socket

import pytest

from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.errors import ApiError
from halimede.hosting.http import connection
from halimede.hosting.substrates.images import ImageRule, Images
from tests.frontends.http.serving import Answer, Client
from tests.hosting.api.serving import ApiHost, api_host

EVERYWHERE = "0.0.0.0"
SERVER = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"


def own_address() -> str:
    """An address of this machine that is no loopback one; a loopback one if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # which sends nothing
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def create_model(host: ApiHost, image: str, address: str) -> Answer:
    body = json.dumps({"ModelName": "m", "PrimaryContainer": {"Image": image}})
    lines = ("POST / HTTP/1.1", f"Host: {address}", "X-Amz-Target: SageMaker.CreateModel")
    with Client(host.port, address) as client:
        return client.ask("\r\n".join((*lines, f"Content-Length: {len(body)}", "", body)).encode())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address at which clients do not seem to be on this machine."""
    address = own_address()
    if address.startswith("127."):
        monkeypatch.setattr(connection, "is_loopback", lambda _: False)
    return address


@pytest.mark.parametrize("image", ["/bin/sh", "file:///bin/sh"])
def test_programs_are_accepted_from_this_machine_only(image: str, elsewhere: str) -> None:
    with api_host(address=EVERYWHERE) as host:
        refused = create_model(host, image, elsewhere)
        assert refused.status == 403
        assert json.loads(refused.body) == {
            "__type": "AccessDeniedException",
            "message": f"the image '{image}' is the path of a program: this host takes paths of programs as images "
            "from its own machine only; start it with --allow-program-images=all to take them from others, or name the "
            "program in --image-rules",
        }
        assert host.calls == []
        assert create_model(host, SERVER, elsewhere).status == 200


def test_programs_are_accepted_from_loopback() -> None:
    with api_host(address=EVERYWHERE) as host:
        assert create_model(host, "/bin/sh", "127.0.0.1").status == 200


def test_programs_may_be_accepted_from_all(elsewhere: str) -> None:
    with api_host(address=EVERYWHERE, program_images=ProgramImages.ALL) as host:
        assert create_model(host, "/bin/sh", elsewhere).status == 200


def test_programs_may_be_refused_altogether() -> None:
    with api_host(program_images=ProgramImages.NONE) as host:
        refused = create_model(host, "/bin/sh", "127.0.0.1")
        assert refused.status == 403
        assert b"(--allow-program-images=none)" in refused.body
        assert create_model(host, SERVER, "127.0.0.1").status == 200


def test_models_that_were_made_before_start_no_programs_either() -> None:
    with pytest.raises(ApiError, match="--allow-program-images=none forbids"):
        Images(programs=False).command("/bin/sh")
    assert Images(programs=False).command("halimede")[1]


def test_programs_that_a_rule_names_are_accepted_from_all() -> None:
    images = Images([ImageRule(re.compile("/opt/.*"), ("/srv/run",))])
    gate = ProgramImageGate(ProgramImages.LOOPBACK, images.is_program)
    gate.check("sagemaker:CreateModel", {"PrimaryContainer": {"Image": "/opt/a"}}, from_loopback=False)
    for document in ({"PrimaryContainer": {"Image": "/srv/a"}}, {"Containers": [{"Image": "/srv/a"}]}):
        with pytest.raises(ApiError, match="--allow-program-images=all"):
            gate.check("sagemaker:CreateModel", document, from_loopback=False)
