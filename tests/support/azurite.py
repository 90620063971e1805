"""Azurite for tests: Azure's emulator of its blob storage, an npm package."""

import base64
import hashlib
import hmac
import re
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import obstore
from obstore.store import AzureStore

from tests.support.lines import complete_lines
from tests.support.waiting import wait_until

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_PROGRAM = Path(__file__).parents[2] / "build" / "npm" / "node_modules" / ".bin" / "azurite-blob"
_VERSION = "2021-08-06"


@contextmanager
def azurite() -> Iterator[str]:
    """The URL of a running server that holds everything in its memory."""
    assert _PROGRAM.exists(), (
        "these tests need Azurite: scripts/need-npm-package.sh azurite@3.35.0 azurite-blob"
    )
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            [
                str(_PROGRAM), "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", "0",
                "--disableTelemetry", "--skipApiVersionCheck", "--silent",
            ],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:

            def address() -> "re.Match[str] | None":
                text = complete_lines(log.name)
                assert process.poll() is None, text
                return re.search(r"successfully listens on (http://\S+)", text)

            found = wait_until(address, "Azurite")
            assert found is not None
            yield found[1]
        finally:
            process.kill()
            process.wait()


def make_container(endpoint: str, name: str) -> AzureStore:
    """A new container."""
    date = formatdate(usegmt=True)
    signed = [
        f"x-ms-date:{date}",
        f"x-ms-version:{_VERSION}",
        f"/{ACCOUNT}/{ACCOUNT}/{name}",
        "restype:container",
    ]
    text = "\n".join(["PUT", *[""] * 11, *signed])
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    url = f"{endpoint}/{ACCOUNT}/{name}?restype=container"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers, method="PUT"), timeout=30):
        return AzureStore(
            name,
            account_name=ACCOUNT,
            account_key=KEY,
            endpoint=f"{endpoint}/{ACCOUNT}",
            client_options={"allow_http": True},
        )


def put_all(store: AzureStore, objects: dict[str, bytes | str]) -> None:
    """Put objects below `repository`."""
    for key, content in objects.items():
        obstore.put(store, f"repository/{key}", content.encode() if isinstance(content, str) else content)
