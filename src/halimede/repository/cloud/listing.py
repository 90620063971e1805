"""What a bucket has of a model: its objects, by path, with their sizes and ETags."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from halimede.core.versions import version_number
from halimede.repository.cloud.failures import BucketError
from halimede.repository.cloud.locations import Location

RECORDS = (".halimede-bucket.json", ".halimede-fetched.json")
"""Files in the directory of a mirrored model: what the bucket has, and what has been fetched of that."""

_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class BucketObject:
    """An object that was listed.

    Attributes:
        size: its bytes.
        tag: changes whenever its content does.
    """

    size: int
    tag: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a bucket has of a model.

    Attributes:
        objects: its files, by their path below the model; in the order of the paths.
        directories: version directories that somebody has made without a file in them, by name.
    """

    objects: Mapping[str, BucketObject] = field(default_factory=dict)
    directories: frozenset[str] = frozenset()

    @property
    def versions(self) -> set[int]:
        """The versions that there are."""
        names = {path.partition("/")[0] for path in self.objects if "/" in path} | self.directories
        return {number for name in names if (number := version_number(name)) is not None}

    @classmethod
    def read(cls, directory: Path) -> "Listing | None":
        """What was noted in a directory; None if nothing was."""
        try:
            document = orjson.loads((directory / RECORDS[0]).read_bytes())
            objects = {path: BucketObject(size, tag) for path, (size, tag) in document["objects"].items()}
            return cls(objects, frozenset(document["directories"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def write(self, directory: Path) -> None:
        """Note it in a directory."""
        objects = {path: [each.size, each.tag] for path, each in self.objects.items()}
        write_record(directory / RECORDS[0], {"objects": objects, "directories": sorted(self.directories)})


def write_record(path: Path, document: object) -> None:
    """Write a file of JSON, all of it or nothing."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(orjson.dumps(document))
    beside.rename(path)


def group_by_model(location: Location, found: Iterable[Mapping[str, object]]) -> dict[str, Listing]:
    """What a bucket has of each model, by name.

    Args:
        location: the repository.
        found: the objects below it, as obstore lists them: ``path``, ``size``, ``e_tag``; in any order.

    Raises:
        BucketError: the objects cannot be files: the text names a key.
    """
    skipped = len(location.path) + 1 if location.path else 0
    models: dict[str, dict[str, BucketObject]] = {}
    for each in found:
        model, slash, path = str(each["path"])[skipped:].partition("/")
        if slash and path not in RECORDS:
            models.setdefault(model, {})[path] = BucketObject(
                int(str(each["size"])), plain_tag(each["e_tag"])
            )
    return {model: _listing(location, model, objects) for model, objects in sorted(models.items())}


def plain_tag(tag: object) -> str:
    """An ETag as services list it, or send it in a header: without what differs between the two."""
    return str(tag or "").removeprefix("W/").strip('"')


def can_be_file(name: str) -> bool:
    """Whether a part of a key can be the name of a file or a directory."""
    encoded = name.encode(errors="ignore")
    return (
        name not in ("", ".", "..")
        and not {"/", "\0"} & set(name)
        and len(encoded) <= _LONGEST_NAME
        and encoded.decode() == name
    )


def check_key(location: Location, *parts: str) -> None:
    """Refuse a key below the repository that cannot be the name of a file; the text names it.

    Raises:
        BucketError: it cannot.
    """
    if not all(map(can_be_file, parts)):
        key = location.key("/".join(parts))
        raise BucketError(f"{location.url}: the key '{key}' cannot be the name of a file; rename the object")


def _listing(location: Location, model: str, objects: dict[str, BucketObject]) -> Listing:
    parents = {parent for path in objects for parent in _parents(path)}
    files: dict[str, BucketObject] = {}
    directories: set[str] = set()
    for path, each in sorted(objects.items()):
        # keys that end with a slash are listed without it
        if each.size == 0 and version_number(path) is not None:
            directories.add(path)
        elif path in parents and each.size:
            raise BucketError(
                f"{location.url}: '{location.key(model, path)}' is an object, and also the directory of others; "
                "rename it"
            )
        elif path not in parents:
            check_key(location, model, *path.split("/"))
            files[path] = each
    return Listing(files, frozenset(directories))


def _parents(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
