"""Access keys and what each of them may do: a TOML file.

[keys.AKIDEXAMPLE]
secret = "…"
account = "123456789012"
actions = ["sagemaker:Describe*", "sagemaker:InvokeEndpoint"]    # all if left out
endpoints = ["prod-*"]                                          # all if left out
target_models = ["team-a/*"]                                    # all if left out

Actions are a service's name and an operation's. Endpoints count wherever a request names one (`references`), and also
if it names something that belongs to one, such as a monitoring schedule. What names none, such as CreateModel, is up to
the actions alone.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import DEFAULT_ROLE

_ACCOUNT = re.compile("[0-9]{12}")
_FIELDS = ("secret", "account", "actions", "endpoints", "target_models")


class KeysError(Exception):
    """The file of keys cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True)
class Key:
    """An access key.

    Attributes:
        id: its id.
        secret: what its owner signs with.
        account: twelve digits.
        actions: patterns of what it may do, such as ``sagemaker:Describe*``.
        endpoints: patterns of the endpoints that it may act on.
        target_models: patterns of the models that it may invoke (IAM's condition ``sagemaker:TargetModel``).
        token: of a key that the host has issued: the session token without which it does not count; "" for none.
        role: the name of the role that its owner has.
        session: the name of the session in which they have it, "" for the key's id.
    """

    id: str
    secret: str = dataclasses.field(repr=False)
    account: str = "000000000000"
    actions: tuple[str, ...] = ("*",)
    endpoints: tuple[str, ...] = ("*",)
    target_models: tuple[str, ...] = ("*",)
    token: str = dataclasses.field(default="", repr=False)
    role: str = DEFAULT_ROLE
    session: str = ""

    def check(self, action: str, endpoint: str | None = None, target_model: str | None = None) -> None:
        """Refuse what the key may not do.

        Raises:
            ApiError: it may not (``AccessDeniedException``).
        """
        for what, value, patterns in (
            ("", action, self.actions),
            # names of endpoints differ in more than capitals, and ARNs have none
            (" on endpoint", endpoint and endpoint.lower(), [pattern.lower() for pattern in self.endpoints]),
            (" of target model", target_model, self.target_models),
        ):
            if value is not None and not any(fnmatchcase(value, pattern) for pattern in patterns):
                where = f"{action}{what} {value}" if what else action
                msg = f"access key {self.id} is not authorized to perform: {where}; it may: {', '.join(patterns)}"
                raise ApiError("AccessDeniedException", msg, 403)


def read_keys(path: Path) -> Mapping[str, Key]:
    """The keys of a file, by id.

    Raises:
        KeysError: it cannot be read, or says something else than keys.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise KeysError(f"cannot read the keys file {path}: {error}") from error
    tables = document.get("keys")
    if not isinstance(tables, dict) or not tables:
        raise KeysError(f"the keys file {path} has no table [keys.ID] with a secret")
    return {name: _key(path, name, table) for name, table in tables.items()}


def _key(path: Path, name: str, table: Any) -> Key:
    where = f"the keys file {path}, [keys.{name}]"
    if not isinstance(table, dict):
        raise KeysError(f"{where}: expected a table")
    unknown = sorted(table.keys() - set(_FIELDS))
    if unknown:
        raise KeysError(f"{where}: unknown field '{unknown[0]}'; there are {', '.join(_FIELDS)}")
    secret, account = table.get("secret"), table.get("account", "000000000000")
    if not isinstance(secret, str) or not secret:
        raise KeysError(f"{where}: 'secret' must be a text that is not empty")
    if not isinstance(account, str) or not _ACCOUNT.fullmatch(account):
        raise KeysError(f"{where}: 'account' must be a text of twelve digits, got {account!r}")
    patterns = {}
    for field in _FIELDS[2:]:
        values = table.get(field, ["*"])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise KeysError(f"{where}: '{field}' must be a list of texts, got {values!r}")
        patterns[field] = tuple(values)
    return Key(name, secret, account, patterns["actions"], patterns["endpoints"], patterns["target_models"])
