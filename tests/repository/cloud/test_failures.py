import pytest

from halimede.repository.cloud.failures import BucketError, ReplacedError, failure, is_final
from halimede.repository.cloud.locations import parse_location

LOCATION = parse_location("s3://bucket/tokenizers/Credentials")


def answered(status: str, code: str = "", message: str = "") -> Exception:
    """What obstore says of an answer."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    return RuntimeError(
        "Generic S3 error: Error performing list request: Error performing GET https://s3/bucket?list-type=2 in "
        f"5.9ms - Server returned non-2xx status code: {status}: {body}\n\nDebug source:\nGeneric {{}}"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (answered("403 Forbidden", "AccessDenied", "No"), "S3 refuses it (403 Forbidden: AccessDenied: No). Check"),
        (answered("401 Unauthorized"), "S3 refuses it (401 Unauthorized). Check the credentials"),
        (answered("400 Bad Request", "ExpiredToken", "Old"), "S3 refuses it (400 Bad Request: ExpiredToken: Old)"),
        (answered("404 Not Found", "NoSuchBucket", "None"), "there is no such bucket (404 Not Found: NoSuchBucket"),
        (answered("404 Not Found", "NoSuchKey", "NoSuchBucket"), "it was replaced or removed after it was listed (404"),
        (answered("412 Precondition Failed"), "it was replaced or removed after it was listed (412"),
        (answered("500 Internal Server Error"), "S3 gives no proper answer (500 Internal Server Error). Check the end"),
        (RuntimeError("odd\n  text"), "S3 gives no proper answer (odd text). Check the endpoint and the network"),
        (
            RuntimeError("Error performing PUT http://169.254.169.254/latest/api/token in 1s - HTTP error: timed out"),
            "there are no credentials (PUT http://169.254.169.254/latest/api/token: HTTP error: timed out)",
        ),
    ],
)  # fmt: skip
def test_each_reason_is_told_with_what_to_check(error: Exception, expected: str) -> None:
    told = failure(LOCATION, "tokenizers/Credentials/m", "list", error)
    where = (
        "cannot list s3://bucket/tokenizers/Credentials (bucket 'bucket', key 'tokenizers/Credentials/m'): "
    )
    assert str(told).startswith(where + expected)
    assert isinstance(told, ReplacedError) == ("replaced or removed" in expected)
    assert isinstance(told, BucketError)


def test_only_what_may_pass_is_worth_another_attempt() -> None:
    assert not is_final(answered("503 Service Unavailable"))
    assert not is_final(answered("429 Too Many Requests"))
    assert not is_final(ConnectionError("broken"))
    assert is_final(answered("403 Forbidden"))
    assert is_final(FileNotFoundError("no object"))


def test_long_texts_are_cut() -> None:
    assert len(str(failure(LOCATION, "k", "read", RuntimeError("x" * 10_000)))) < 600
