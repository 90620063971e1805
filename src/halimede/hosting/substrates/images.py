"""What an image stands for: images are not pulled; rules say which program runs in place of each.

    [[images]]
    pattern = ".*/my-server:.*"
    command = ["/srv/my-server/serve"]

The program is called with `serve`, as a container is.
"""

import os
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.errors import invalid

SERVER = (sys.executable, "-m", "halimede", "sagemaker-serve")
"""This package's server, as a SageMaker container runs it."""

_OWN = re.compile(
    r"halimede(:.*)?"
    r"|(.*/)?(sagemaker-tritonserver|tritonserver|djl-inference|huggingface-pytorch-tgi-inference)(:.*|@.*)?"
)


class ImageRulesError(Exception):
    """The file of image rules cannot be used; the text says where and why."""


@dataclass(frozen=True, slots=True)
class ImageRule:
    """Which program stands for which images.

    Attributes:
        pattern: matches the whole name of an image.
        command: the program and its first arguments.
    """

    pattern: re.Pattern[str]
    command: tuple[str, ...]


class Images:
    """Finds the program for an image. The user's rules come first."""

    def __init__(
        self, rules: Sequence[ImageRule] = (), path: Path | None = None, *, programs: bool = True
    ) -> None:
        """Images.

        Args:
            rules: the user's.
            path: the file that they are from.
            programs: paths of programs are images too.
        """
        self._rules = rules
        self._path = path
        self._programs = programs

    def is_program(self, image: str) -> bool:
        """Whether an image is the path of a program, and nothing says what else it stands for."""
        return self._rule(image) is None and not _OWN.fullmatch(image) and _program(image).is_absolute()

    def _rule(self, image: str) -> ImageRule | None:
        return next((rule for rule in self._rules if rule.pattern.fullmatch(image)), None)

    def command(self, image: str) -> tuple[tuple[str, ...], bool]:
        """The program for an image with its arguments, and whether it is this package's server.

        Raises:
            ApiError: no rule matches; the text says how one is added.
        """
        rule = self._rule(image)
        if rule is not None:
            return (*rule.command, "serve"), False
        if _OWN.fullmatch(image):
            return SERVER, True
        path = _program(image)
        if path.is_absolute():
            if not self._programs:
                msg = f"the image '{image}' is the path of a program, and --allow-program-images=none forbids those"
                raise invalid(msg)
            if not os.access(path, os.X_OK) or path.is_dir():
                raise invalid(
                    f"the image '{image}' names a program that cannot be run: it is missing or not executable"
                )
            return (str(path), "serve"), False
        where = f"in {self._path}" if self._path else "with --image-rules"
        msg = (
            f"no rule says what runs for the image '{image}': this host pulls no images. Images named "
            f"sagemaker-tritonserver run Halimede; for another, add a rule [[images]] with pattern and command "
            f"{where}, or name the program by its absolute path"
        )
        raise invalid(msg)


def _program(image: str) -> Path:
    return Path(image.removeprefix("file://"))


def read_image_rules(path: Path) -> list[ImageRule]:
    """The rules of a file.

    Raises:
        ImageRulesError: it cannot be read, or says something else than rules.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ImageRulesError(f"cannot read the image rules {path}: {error}") from error
    tables = document.get("images")
    if not isinstance(tables, list) or not tables:
        raise ImageRulesError(f"the image rules {path} have no [[images]] with pattern and command")
    return [_rule(path, number, table) for number, table in enumerate(tables, 1)]


def _rule(path: Path, number: int, table: object) -> ImageRule:
    where = f"the image rules {path}, rule {number}"
    if not isinstance(table, dict) or set(table) != {"pattern", "command"}:
        raise ImageRulesError(f"{where}: expected 'pattern' and 'command', and nothing else")
    pattern, command = table["pattern"], table["command"]
    if not isinstance(command, list) or not command or not all(isinstance(part, str) for part in command):
        raise ImageRulesError(f"{where}: 'command' must be a list of texts, got {command!r}")
    try:
        return ImageRule(re.compile(pattern), tuple(command))
    except (re.error, TypeError) as error:
        raise ImageRulesError(f"{where}: 'pattern' is no regular expression: {error}") from None
