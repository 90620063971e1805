"""Who may send code that is then run, or say which: with a request to load a model."""

from enum import Enum

from halimede.core.errors import PermissionDeniedError
from halimede.core.origins import is_loopback

UPLOAD_FLAG = "--allow-model-code-upload"
FILES = "files of models"


class CodeUpload(Enum):
    """Clients that may send files of models (`--allow-model-code-upload`)."""

    LOOPBACK = "loopback"
    ALL = "all"
    NONE = "none"

    def check(self, peer: str, what: str = FILES) -> None:
        """Nothing, if a client at this address may send code.

        Args:
            peer: its address; "" for one at a Unix socket.
            what: what it has sent.

        Raises:
            PermissionDeniedError: it may not; the text says what the flag would have to be.
        """
        if self is CodeUpload.ALL or (self is CodeUpload.LOOPBACK and is_loopback(peer)):
            return
        if self is CodeUpload.NONE:
            msg = (
                f"{what} are not taken from requests, since they may be code; "
                f"{UPLOAD_FLAG}=loopback takes them from clients on the server's machine, {UPLOAD_FLAG}=all from any"
            )
        else:
            msg = (
                f"{what} are taken only from clients on the server's machine, since they may be code; "
                f"{UPLOAD_FLAG}=all takes them from any client"
            )
        raise PermissionDeniedError(msg)
