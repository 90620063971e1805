"""Where the symbolic links of an archive lead.

That can only be told when all of them are known: one may lead through another. So they are made as they come, nothing
is ever written through one, and at last each is followed as the kernel would follow it.

Needs nothing but the standard library: the program that extracts archives is made of it.
"""

from collections.abc import Callable
from pathlib import PurePosixPath

from halimede.repository.archive_stream import ArchiveError

_MAX_LINKS = 40
"""Links on the way of one, as for the kernel."""

_MAX_STEPS = 1_000_000
"""Names on the way of all links together; ten times what the largest environments have."""


def shown(name: str) -> str:
    """A name as an error tells it: in one short line, whatever is in it."""
    return repr(name[:200])[1:-1] + "…" * (len(name) > 200)


class Links:
    """The symbolic links of a directory that is being filled."""

    def __init__(self, may_leave: Callable[[PurePosixPath], bool]) -> None:
        """None, so far.

        Args:
            may_leave: whether the link at this place may lead out of the directory. No other may lead through it.
        """
        self._may_leave = may_leave
        self._targets: dict[str, str] = {}
        self._steps = 0

    def put(self, place: PurePosixPath, target: str) -> None:
        """At this place is a link now."""
        self._targets[str(place)] = target

    def drop(self, place: PurePosixPath) -> None:
        """At this place is no link any more."""
        self._targets.pop(str(place), None)

    def target(self, place: PurePosixPath) -> str | None:
        """What the link at this place says; None if there is none."""
        return self._targets.get(str(place))

    def check(self) -> None:
        """Nothing, if all links stay inside the directory.

        Raises:
            ArchiveError: one does not.
        """
        for name in self._targets:
            if not self._may_leave(PurePosixPath(name)):
                self._follow(name)

    def _follow(self, name: str) -> None:
        place = name
        ahead: list[str] = []
        links = 0
        while True:
            target = self._targets.get(place)
            if target is not None:
                if place != name and self._may_leave(PurePosixPath(place)):
                    if ahead:
                        raise ArchiveError(
                            f"'{shown(name)}' leads through '{shown(place)}', a link that may leave the directory"
                        )
                    return
                if target.startswith("/"):
                    raise ArchiveError(
                        f"Path is absolute: '{shown(target)}', to which '{shown(place)}' links"
                    )
                parts = target.split("/")
                links += 1
                self._steps += len(parts)
                if links > _MAX_LINKS or self._steps > _MAX_STEPS:
                    raise ArchiveError(f"'{shown(name)}' links in a circle, or leads through too many links")
                ahead += reversed(parts)
                place = _above(place)
            # what is not there is passed as if it were a directory: the kernel stops at it
            while ahead and ahead[-1] in ("", "."):
                ahead.pop()
            if not ahead:
                return
            part = ahead.pop()
            if part != "..":
                place = f"{place}/{part}" if place else part
            elif place:
                place = _above(place)
            else:
                raise ArchiveError(
                    f"Path contains '..' and leaves the directory: '{shown(self._targets[name])}', "
                    f"to which '{shown(name)}' links"
                )


def _above(place: str) -> str:
    return place.rpartition("/")[0]
