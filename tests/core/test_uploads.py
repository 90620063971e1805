import pytest

from halimede.core.errors import PermissionDeniedError
from halimede.core.uploads import CodeUpload


@pytest.mark.parametrize(
    ("upload", "peer"),
    [
        (CodeUpload.LOOPBACK, "127.0.0.1"),
        (CodeUpload.LOOPBACK, "::1"),
        (CodeUpload.LOOPBACK, ""),
        (CodeUpload.ALL, "10.0.0.2"),
        (CodeUpload.ALL, "unknown"),
    ],
)
def test_code_is_taken_from_who_may_send_it(upload: CodeUpload, peer: str) -> None:
    upload.check(peer)


@pytest.mark.parametrize(
    ("upload", "peer", "needed"),
    [
        (CodeUpload.LOOPBACK, "10.0.0.2", "--allow-model-code-upload=all takes"),
        (CodeUpload.LOOPBACK, "unknown", "--allow-model-code-upload=all takes"),
        (CodeUpload.NONE, "127.0.0.1", "--allow-model-code-upload=loopback takes"),
        (CodeUpload.NONE, "", "--allow-model-code-upload=loopback takes"),
    ],
)
def test_the_refusal_says_what_the_flag_would_have_to_be(upload: CodeUpload, peer: str, needed: str) -> None:
    with pytest.raises(PermissionDeniedError, match=needed) as refused:
        upload.check(peer)
    assert (refused.value.code.http_status, refused.value.code.grpc_status) == (403, 7)
