"""Who may call the server, and what for."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, FILE, choice, form, repeated, setting
from halimede.core.uploads import CodeUpload

ACCESS: Final = "Access"


@dataclass(frozen=True, kw_only=True)
class AccessOptions:
    """The flags of the group "Access" that do something."""

    token_file: str = setting(
        ACCESS,
        FILE,
        "",
        "File of bearer tokens, a line NAME:sha256:HASH for each, as `halimede token NAME` makes them. Over HTTP and "
        "gRPC, calls then need the header 'Authorization: Bearer TOKEN'. Read again when it changes.",
    )
    token_apis: str = setting(
        ACCESS,
        form("API[,API…]"),
        "",
        "Groups of calls that need a token of --token-file: those of --http-restricted-api, and metrics.",
        shown_default="all but health",
    )
    allow_origin: tuple[str, ...] = repeated(
        ACCESS,
        form("ORIGIN"),
        "Web pages that may send requests over HTTP and read the responses, by their origin, such as "
        "https://app.example or http://localhost:3000. Other pages may not load models, infer or change anything. "
        "'*' allows every page.",
    )
    allow_host: tuple[str, ...] = repeated(
        ACCESS,
        form("NAME"),
        "Further name of this machine, for requests over HTTP that come over loopback: those whose Host header names "
        "another are refused, as a web page may have sent them. Addresses, localhost and the machine's own name are "
        "always allowed. '*' allows every name.",
    )
    allow_model_code_upload: str = setting(
        ACCESS,
        choice(*(each.value for each in CodeUpload)),
        CodeUpload.LOOPBACK.value,
        "Clients that may send a model's files with the request to load it (file:…), which may be code that the "
        "server runs: those on this machine (loopback), all that reach the server (all), or none.",
    )
    allow_client_shm: bool = setting(
        ACCESS,
        BOOL,
        False,
        "Let clients register shared memory of this machine, from which the server takes inputs and into which it puts "
        "outputs. Whoever may register it can read and write any shared memory that the server may.",
    )
