"""Which models an extracted archive holds, and which of them requests to the archive are for.

There are two layouts. Either the archive is one model: `config.pbtxt` or numbered versions lie at its root. Or it is a
repository: each directory at its root is a model, such as an ensemble and the models that it needs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from halimede.config.ensembles import is_ensemble, needs_of
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import read_config
from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError

CONFIG = "config.pbtxt"


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """What an extracted archive holds.

    Attributes:
        repository: the directory in which the models lie.
        models: name of a model's directory → the directory.
        entry: name of the one that requests are for.
        needed: names of those that are needed by the entry, if it is an ensemble, directly or through others.
    """

    repository: Path
    models: Mapping[str, Path]
    entry: str
    needed: frozenset[str]


def read_layout(directory: Path, stem: str = "") -> ArchiveLayout:
    """What the directory holds into which an archive was extracted.

    Args:
        directory: the directory.
        stem: name of the archive without its suffix; it decides between several models without an ensemble.

    Raises:
        NotFoundError: there is no such directory.
        InvalidArgumentError: it holds no model, or it cannot be told which one requests are for.
        OSError: it cannot be read.
    """
    if not directory.is_dir():
        raise NotFoundError(f"there is no directory '{directory}'")
    if is_model(directory):
        return ArchiveLayout(directory.parent, {directory.name: directory}, directory.name, frozenset())
    models = {
        entry.name: entry for entry in sorted(directory.iterdir()) if entry.is_dir() and is_model(entry)
    }
    if not models:
        raise InvalidArgumentError(
            f"'{directory}' holds no model: neither {CONFIG} or a numbered version, as a model does, nor a directory "
            "with one of them, as a repository does"
        )
    steps = {name: steps_of(path) for name, path in models.items()}
    entry = choose_entry(steps, stem)
    return ArchiveLayout(directory, models, entry, _needed(entry, steps))


def is_model(directory: Path) -> bool:
    """Whether a directory is a model's: it has a configuration or a numbered version."""
    if (directory / CONFIG).is_file():
        return True
    return any(
        entry.name.isdecimal() and entry.name.isascii() and entry.is_dir() for entry in directory.iterdir()
    )


def steps_of(directory: Path) -> tuple[str, ...] | None:
    """The models of an ensemble's steps; None for a model that is none.

    Whoever loads a model whose configuration cannot be read will say so.
    """
    try:
        config = read_config(directory / CONFIG) if (directory / CONFIG).is_file() else ModelConfig()
    except (HalimedeError, OSError):
        return None
    return needs_of(config) if is_ensemble(config) else None


def choose_entry(steps: Mapping[str, tuple[str, ...] | None], stem: str = "") -> str:
    """The model that requests to an archive are for.

    It is the ensemble that no other one needs. Without an ensemble, or with several, it is the one that is called as
    the archive; a single model needs no rule.

    Args:
        steps: name of each model → the models of its steps if it is an ensemble, else None.
        stem: name of the archive without its suffix.

    Raises:
        InvalidArgumentError: it cannot be told.
    """
    needed = {need for needs in steps.values() for need in needs or ()}
    ensembles = [name for name, needs in steps.items() if needs is not None and name not in needed]
    candidates = ensembles or list(steps)
    if len(candidates) == 1:
        return candidates[0]
    if stem in candidates:
        return stem
    what = "ensembles" if ensembles else "models and no ensemble"
    called = f"; name one of them '{stem}', as the archive" if stem else ""
    raise InvalidArgumentError(
        f"the archive holds {len(candidates)} {what} ({_listed(candidates)}), and it cannot be told which one "
        f"requests are for: an ensemble that the others are steps of says so{called}"
    )


def _needed(entry: str, steps: Mapping[str, tuple[str, ...] | None]) -> frozenset[str]:
    """The models that an ensemble needs, directly or through others."""
    needed: set[str] = set()
    left = [entry]
    while left:
        for need in steps.get(left.pop()) or ():
            if need in steps and need not in needed:
                needed.add(need)
                left.append(need)
    return frozenset(needed - {entry})


def _listed(names: Collection[str]) -> str:
    shown = [f"'{name}'" for name in sorted(names)[:5]]
    return ", ".join(shown) + ", …" * (len(names) > len(shown))
