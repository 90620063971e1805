"""The repository agent `decrypt`: models lie encrypted in the repository, and are decrypted while they are loaded.

The parameter ``key_file`` names a file with the key, 64 hexadecimal digits. Files that end with ``.aes`` are decrypted
into a private directory, the others are copied there, and the server deletes it when the model is unloaded.

An encrypted file is a nonce of 12 bytes, the content under AES-256-GCM, and its tag of 16 bytes. The tag also covers
the file's name, so that nobody can put one file in another's place.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SUFFIX = ".aes"
_NONCE_BYTES = 12
_TAG_BYTES = 16
_CHUNK_BYTES = 1 << 20


class TritonRepositoryAgent:
    """Decrypts models."""

    def load(self, model: Any) -> None:
        """Have the model loaded from a directory with its decrypted files."""
        key = read_key(Path(model.parameters["key_file"]))
        plain = model.acquire_location()
        for path in sorted(model.location.rglob("*")):
            name = path.relative_to(model.location)
            target = plain / name
            if path.is_dir():
                target.mkdir()
            elif path.suffix != SUFFIX:
                shutil.copyfile(path, target)
            else:
                try:
                    decrypt(path, target.with_suffix(""), key, str(name.with_suffix("")))
                except InvalidTag:
                    model.refuse(f"'{name}' was encrypted with another key, or was changed since")
        model.update_location(plain)


def read_key(file: Path) -> bytes:
    """The key in a file.

    Raises:
        ValueError: it is none; the text does not repeat it.
    """
    try:
        key = bytes.fromhex(file.read_text())
    except ValueError:
        key = b""
    if len(key) != 32:
        msg = f"{file} does not hold 64 hexadecimal digits"
        raise ValueError(msg)
    return key


def encrypt(source: Path, target: Path, key: bytes, name: str) -> None:
    """Encrypt a file, which has that name in its model."""
    nonce = os.urandom(_NONCE_BYTES)
    encryptor = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    encryptor.authenticate_additional_data(name.encode())
    with source.open("rb") as plain, target.open("wb") as file:
        file.write(nonce)
        while chunk := plain.read(_CHUNK_BYTES):
            file.write(encryptor.update(chunk))
        file.write(encryptor.finalize() + encryptor.tag)


def decrypt(source: Path, target: Path, key: bytes, name: str) -> None:
    """Decrypt a file, which has that name in its model, a chunk at a time.

    Raises:
        InvalidTag: it has another name, was encrypted with another key, or was changed since.
    """
    size = source.stat().st_size - _NONCE_BYTES - _TAG_BYTES
    if size < 0:
        raise InvalidTag
    with source.open("rb") as file, target.open("wb") as plain:
        decryptor = Cipher(algorithms.AES(key), modes.GCM(file.read(_NONCE_BYTES))).decryptor()
        decryptor.authenticate_additional_data(name.encode())
        while size:
            chunk = file.read(min(size, _CHUNK_BYTES))
            plain.write(decryptor.update(chunk))
            size -= len(chunk)
        decryptor.finalize_with_tag(file.read(_TAG_BYTES))
