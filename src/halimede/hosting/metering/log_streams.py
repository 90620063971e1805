"""Log streams: an instance is one, ``VARIANT/INSTANCE``; each of several containers is ``VARIANT/INSTANCE/CONTAINER``.

The containers of an instance share its log. Each line of theirs says whose it is, and a file beside the log which
containers there are (`substrates.base.name_containers`); other lines are the instance's own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from halimede.hosting.metering.log_lines import Event
from halimede.hosting.substrates.base import containers_file, line_lead


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream.

    Attributes:
        name: its name.
        log: the file that holds its lines, and maybe others.
        container: the container whose lines are meant; "" for those of none.
        leads: how lines of the instance's containers begin.
    """

    name: str
    log: Path
    container: str = ""
    leads: tuple[str, ...] = ()

    def events(self, events: Iterable[Event]) -> Iterator[Event]:
        """Those of a log's events that are the stream's, as they were printed."""
        if self.container:
            lead = line_lead(self.container)
            for event in events:
                if event.text.startswith(lead):
                    yield replace(event, text=event.text[len(lead) :])
        elif self.leads:
            for event in events:
                if not event.text.startswith(self.leads):
                    yield event
        else:
            yield from events


def streams_of(log: Path) -> Iterator[Stream]:
    """The streams of the log of an instance."""
    name = f"{log.parent.name}/{log.stem}"
    try:
        containers = containers_file(log).read_text().split()
    except OSError:  # it has only one
        containers = []
    leads = tuple(map(line_lead, containers))
    yield Stream(name, log, "", leads)
    for container in containers:
        yield Stream(f"{name}/{container}", log, container, leads)
