"""Which lines a `requirements.txt` may have if its author is not who runs the server, as in archives of models.

A line may name a package, with a version, extras and conditions, or a file or directory of the model. Packages then
come only from where pip of this machine is configured to fetch them. Lines of any other form are refused, and so is an
option that a newer pip adds.
"""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from halimede.core.errors import InternalError

ALLOW_ALL = "--backend-config=python,requirement-sources=any"
"""The setting with which nothing is refused."""

_MAX_SHOWN = 200
_MAX_FILES = 100
_MAX_BYTES = 1 << 20

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_EXTRAS = rf"(?:[ ]*\[[ ]*(?:{_NAME}(?:[ ]*,[ ]*{_NAME})*)?[ ]*\])?"
_VERSION = r"[ ]*(?:===?|~=|!=|[<>]=?)[ ]*[A-Za-z0-9.*+!_-]+"
_VERSIONS = rf"(?:{_VERSION}(?:[ ]*,{_VERSION})*|[ ]*\({_VERSION}(?:[ ]*,{_VERSION})*[ ]*\))?"
_MARKER = r"(?:[ ]*;[A-Za-z0-9_.\s'\"<>=!~()-]+?)?"
_HASHES = r"(?:[ ]+--hash[= ][a-z0-9]+:[0-9a-fA-F]+)*"

_PACKAGE = re.compile(rf"{_NAME}{_EXTRAS}{_VERSIONS}{_MARKER}{_HASHES}")
_PATH = re.compile(rf"(?P<path>[A-Za-z0-9_.][A-Za-z0-9_+./-]*){_EXTRAS}{_MARKER}{_HASHES}")
_FILE = re.compile(
    r"(?:-[rc][ ]*|--(?:requirement|constraint)[ =][ ]*)(?P<path>[A-Za-z0-9_./][A-Za-z0-9_+./-]*)"
)
_OPTION = re.compile(
    r"--(?:pre|prefer-binary|require-hashes|no-index|(?:no-binary|only-binary)[= ][A-Za-z0-9_.:,-]+)"
)
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".tar")

_COMMENT = re.compile(r"(^|\s+)#.*$")
_CODING = re.compile(rb"coding[:=]\s*([-\w.]+)")  # as pip reads it
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)

_REASONS = (
    (re.compile(r"(-e|--editable)\b"), "editable installs are not allowed; name the directory without -e"),
    (
        re.compile(r"(-i|--index-url|--extra-index-url|--pypi-url|-f|--find-links|--trusted-host)\b"),
        (
            "the file must not say where packages come from; set PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS "
            "in the environment of the server"
        ),
    ),
    (
        re.compile(r".*(://|\bgit\+|\bhg\+|\bsvn\+|\bbzr\+|(^|\s)@\s|\bfile:)"),
        (
            "URLs are not allowed; put the file into the model's directory and name it by its relative path, or name a "
            "package of the index"
        ),
    ),
    (re.compile(r".*\$\{"), "variables of the environment are not allowed; write their values"),
    (
        re.compile(r"(/|~|[A-Za-z]:[\\/])|.*\.\."),
        "paths must stay inside the model's directory; put the file there",
    ),
    (
        re.compile(r"-"),
        (
            "this option is not allowed; allowed are -r, -c, --hash, --pre, --prefer-binary, --no-index, --no-binary, "
            "--only-binary and --require-hashes"
        ),
    ),
)
_OTHER = "it is neither the name of a package nor the path of a file in the model's directory"


def check_requirements(model: str, requirements: Path, root: Path) -> None:
    """Refuse a file of requirements with lines that are not allowed, in it or in the files that it names.

    Args:
        model: whose requirements they are, for the text.
        requirements: the file.
        root: the directory in which all files that are named have to lie.

    Raises:
        InternalError: a line is refused. The text names the file, the line, and what to do.
        OSError: a file cannot be read.
    """
    root = root.resolve()
    waiting, seen = [requirements], set[Path]()
    while waiting:
        path = waiting.pop()
        if path.resolve() in seen:
            continue
        seen.add(path.resolve())
        if len(seen) > _MAX_FILES:
            raise InternalError(f"model '{model}': '{requirements}' names more than {_MAX_FILES} other files")
        for number, line in _lines(model, path):
            try:
                other = _checked(line, requirements.parent, path, root)
            except ValueError as error:
                raise _refused(model, path, number, line, str(error)) from None
            if other is not None:
                waiting.append(other)


def _refused(model: str, path: Path, number: int, line: str, why: str) -> InternalError:
    return InternalError(
        f"model '{model}': '{path}', line {number}: '{line[:_MAX_SHOWN]}' is refused: {why}. Whoever runs the server "
        f"can allow everything with {ALLOW_ALL}"
    )


def _checked(line: str, working: Path, path: Path, root: Path) -> Path | None:
    """The other file of requirements that a line names, if it names one.

    Args:
        line: without its comment.
        working: the directory in which pip runs.
        path: the file that has the line.
        root: where all files have to lie.

    Raises:
        ValueError: the line is refused; the text says why.
    """
    if (found := _FILE.fullmatch(line)) is not None:
        # pip looks for it beside the file that names it
        return _inside(path.parent / found["path"], root)
    if _OPTION.fullmatch(line) is not None:
        return None
    if (found := _PATH.fullmatch(line)) is not None and _is_path(found["path"]):
        _inside(working / found["path"], root)
        return None
    if _PACKAGE.fullmatch(line) is None:
        raise ValueError(next((why for pattern, why in _REASONS if pattern.match(line)), _OTHER))
    return None


def _is_path(text: str) -> bool:
    return "/" in text or text.startswith(".") or text.lower().endswith(_ARCHIVES)


def _inside(path: Path, root: Path) -> Path:
    if not path.resolve().is_relative_to(root):
        raise ValueError("paths must stay inside the model's directory; put the file there")
    return path


def _lines(model: str, path: Path) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers, joined and without comments as pip reads them.

    Raises:
        InternalError: pip would read the file in another encoding than UTF-8.
    """
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InternalError(f"model '{model}': '{path}' is larger than {_MAX_BYTES} bytes")
    for number, raw in enumerate(data.split(b"\n")[:2], 1):
        found = _CODING.search(raw) if raw.startswith(b"#") else None
        if found is not None and found[1].lower() not in (b"utf-8", b"utf8"):
            raise _refused(model, path, number, raw.decode(errors="replace"), "the file must be in UTF-8")
    if data.startswith(_BYTE_ORDER_MARKS):
        raise _refused(model, path, 1, "", "the file must be in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refused(model, path, 1, "", "the file must be in UTF-8") from None
    first, parts = 0, list[str]()
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        first = first or number
        is_comment = _COMMENT.match(line) is not None
        if line.endswith("\\") and not is_comment and number < len(lines):
            parts.append(line.strip("\\"))
            continue
        joined = _COMMENT.sub("", "".join((*parts, f" {line}" if is_comment else line))).strip()
        if joined:
            yield first, joined
        first, parts = 0, []
