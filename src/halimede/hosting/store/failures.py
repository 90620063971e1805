"""What S3 answers when it refuses something."""

import errno
import shutil
from pathlib import Path

from halimede.hosting.errors import ApiError


def no_such_bucket(bucket: str) -> ApiError:
    """There is no such bucket."""
    return ApiError("NoSuchBucket", f"The specified bucket does not exist: '{bucket}'", 404)


def other_account(bucket: str) -> ApiError:
    """The bucket is not the caller's."""
    return ApiError("AccessDenied", f"Access Denied: bucket '{bucket}' belongs to another account", 403)


def no_such_key(bucket: str, key: str) -> ApiError:
    """There is no such object."""
    return ApiError("NoSuchKey", f"The specified key does not exist: '{key}' in bucket '{bucket}'", 404)


def no_such_upload(upload: str) -> ApiError:
    """There is no such upload."""
    msg = (
        f"The specified upload does not exist: '{upload}'. The upload ID may be invalid, or the upload may have been "
        "aborted or completed"
    )
    return ApiError("NoSuchUpload", msg, 404)


def precondition_failed(condition: str) -> ApiError:
    """A condition of the request does not hold."""
    msg = f"At least one of the pre-conditions you specified did not hold: {condition}"
    return ApiError("PreconditionFailed", msg, 412)


def invalid_argument(message: str) -> ApiError:
    """An argument is wrong."""
    return ApiError("InvalidArgument", message)


def not_implemented(what: str) -> ApiError:
    """The store does not do that."""
    return ApiError("NotImplemented", f"the object store of this host does not implement {what}", 501)


def disk_failed(directory: Path, error: OSError) -> ApiError:
    """The disk does not take or give what it should."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return disk_full(directory)
    msg = f"the object store at {directory} cannot be used: {error.strerror or error}"
    return ApiError("InternalError", msg, 500)


def disk_full(directory: Path, needed: int = 0) -> ApiError:
    """The disk has no room; `needed` are the bytes that it should have had, if that is known."""
    wanted = f"{needed:,} bytes are needed and " if needed else ""
    free = shutil.disk_usage(directory).free
    msg = (
        f"the disk of the object store at {directory} is full: {wanted}{free:,} are free; delete objects, or free some "
        "of the disk"
    )
    return ApiError("InsufficientStorage", msg, 507)
