"""Who may call the server, and what for."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, FILE, choice, form, repeated, setting
from halimede.core.uploads import CodeUpload

ACCESS: Final = "Access"


@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """The flags of the group "Access"."""

    token_file: str = setting(
        ACCESS,
        FILE,
        "",
        "File of bearer tokens, with a line NAME:sha256:HASH for each; `halimede token NAME` makes one. Calls "
        "over HTTP and gRPC then need the header 'Authorization: Bearer TOKEN'. The file is reloaded when it "
        "changes.",
    )
    token_apis: str = setting(
        ACCESS,
        form("API[,API…]"),
        "",
        "Groups of calls that need a token of --token-file: the groups of --http-restricted-api, and metrics.",
        shown_default="all but health",
    )
    allow_origin: tuple[str, ...] = repeated(
        ACCESS,
        form("ORIGIN"),
        "Origin of web pages that may call the server over HTTP and read its responses, such as "
        "https://app.example or http://localhost:3000. Pages of other origins cannot infer, load models or change "
        "anything. '*' allows all pages.",
    )
    allow_host: tuple[str, ...] = repeated(
        ACCESS,
        form("NAME"),
        "Further host name of this machine. HTTP requests over loopback are refused if their Host header has "
        "another name, since a web page may have sent them. Addresses, localhost and the machine's own name are "
        "always allowed. '*' allows all names.",
    )
    allow_model_code_upload: str = setting(
        ACCESS,
        choice(*(each.value for each in CodeUpload)),
        CodeUpload.LOOPBACK.value,
        "Which clients may send model files (file:…) with a request to load a model, as such files may be code "
        "that the server runs: those on this machine (loopback), all, or none.",
    )
    profile: bool = setting(
        ACCESS,
        BOOL,
        False,
        "Let clients take profiles of the running server with POST /v2/debug/profile: the share of each stage of a "
        "request, and a flame graph. Needs py-spy, which the extra 'profile' installs.",
    )
    allow_client_shm: bool = setting(
        ACCESS,
        BOOL,
        False,
        "Let clients register shared memory of this machine for their inputs and outputs. Such a client can read "
        "and write all shared memory that the server can.",
    )
