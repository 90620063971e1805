"""Encrypt the models of a repository, for the agent `decrypt`.

Everything is encrypted but the configurations, which are told to use the agent.
"""

import argparse
import secrets
from pathlib import Path

from examples.encrypted.agents.decrypt.agent import SUFFIX, encrypt, read_key

_AGENT = """
model_repository_agents {{
  agents {{ name: "decrypt" parameters {{ key: "key_file" value: "{key_file}" }} }}
}}
"""


def encrypt_model(source: Path, target: Path, key_file: Path) -> None:
    """Write an encrypted copy of a model's directory."""
    key = read_key(key_file)
    target.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir():
            (target / name).mkdir()
        elif str(name) != "config.pbtxt":
            encrypt(path, target / f"{name}{SUFFIX}", key, str(name))
    config = source / "config.pbtxt"
    text = config.read_text() if config.exists() else ""
    (target / "config.pbtxt").write_text(text + _AGENT.format(key_file=key_file.absolute()))


def main() -> None:
    """Encrypt each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="the repository")
    parser.add_argument("encrypted", type=Path, help="the repository to write")
    parser.add_argument("--key-file", type=Path, required=True, help="the key; made if it is not there")
    arguments = parser.parse_args()
    if not arguments.key_file.exists():
        arguments.key_file.touch(0o600)
        arguments.key_file.write_text(secrets.token_hex(32))
    for model in sorted(path for path in arguments.models.iterdir() if path.is_dir()):
        encrypt_model(model, arguments.encrypted / model.name, arguments.key_file)
        print(f"encrypted {model.name}")


if __name__ == "__main__":
    main()
