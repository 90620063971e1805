"""S3's operations on buckets."""

import re

from halimede.hosting.errors import ApiError
from halimede.hosting.store import body, s3_xml
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.s3_call import S3Call

_NAME = re.compile(r"(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9](?:[a-z0-9]|[.-](?=[a-z0-9-])){1,61}[a-z0-9]")
_TAKEN = {"console", "endpoints", "metrics", "offers", "ping", "service"}
"""Paths of the host's own, on the same port."""

_XML_BYTES = 4 << 20
_USUAL_REGION = "us-east-1"


async def list_buckets(store: ObjectStore, call: S3Call) -> None:
    """``ListBuckets``."""
    call.check("s3:ListAllMyBuckets")
    prefix, after = call.parameters.get("prefix", ""), call.parameters.get("continuation-token", "")
    limit = call.number("max-buckets", 10_000, 10_000)
    found = [
        bucket
        for bucket in await store.buckets(call.caller.account)
        if bucket.name.startswith(prefix) and bucket.name > after
    ]
    buckets = [
        (
            "Bucket",
            [
                ("Name", bucket.name),
                ("CreationDate", s3_xml.timestamp(bucket.created)),
                ("BucketRegion", bucket.region),
            ],
        )
        for bucket in found[:limit]
    ]
    content: list[s3_xml.Element] = [("Owner", [("ID", call.caller.account)]), ("Buckets", buckets)]
    if found[limit:] and limit:
        content.append(("ContinuationToken", found[limit - 1].name))
    call.answer_xml("ListAllMyBucketsResult", content)


async def create_bucket(store: ObjectStore, call: S3Call) -> None:
    """``CreateBucket``."""
    call.check("s3:CreateBucket")
    data = await body.read(call.request, call.access, store, _XML_BYTES)
    region = call.caller.region
    if data:
        region = (await s3_xml.read(data, "CreateBucketConfiguration")).value("LocationConstraint") or region
    if not _NAME.fullmatch(call.bucket):
        msg = (
            f"The specified bucket is not valid: '{call.bucket}' must be 3 to 63 lower-case letters, digits, dots and "
            "hyphens, begin and end with a letter or digit, and be no IP address"
        )
        raise ApiError("InvalidBucketName", msg)
    if call.bucket in _TAKEN:
        msg = f"a bucket cannot be called '{call.bucket}' here, since the host answers other requests at that path"
        raise ApiError("InvalidBucketName", msg)
    known = await store.create_bucket(call.bucket, call.caller.account, region)
    if known is not None and known.account != call.caller.account:
        msg = f"The requested bucket name is not available: '{call.bucket}' belongs to another account"
        raise ApiError("BucketAlreadyExists", msg, 409)
    if known is not None and call.caller.region != _USUAL_REGION:
        msg = f"Your previous request to create the named bucket succeeded and you already own it: '{call.bucket}'"
        raise ApiError("BucketAlreadyOwnedByYou", msg, 409)
    call.answer(headers=(("Location", f"/{call.bucket}"),))


async def head_bucket(store: ObjectStore, call: S3Call) -> None:
    """``HeadBucket``."""
    call.check("s3:ListBucket")
    bucket = await store.bucket(call.bucket)
    call.answer(headers=(("x-amz-bucket-region", bucket.region),))


async def delete_bucket(store: ObjectStore, call: S3Call) -> None:
    """``DeleteBucket``."""
    call.check("s3:DeleteBucket")
    await store.delete_bucket(call.bucket)
    call.answer(204)


async def get_bucket_location(store: ObjectStore, call: S3Call) -> None:
    """``GetBucketLocation``."""
    call.check("s3:GetBucketLocation")
    region = (await store.bucket(call.bucket)).region
    call.answer_xml("LocationConstraint", "" if region == _USUAL_REGION else region)
