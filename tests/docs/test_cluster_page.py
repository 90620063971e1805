"""What the page on clusters says, held against the program."""

import re

import pytest

from halimede.cli.hosting.host import command
from tests.docs.pages import ROOT, section

PAGE = ROOT / "docs/cluster.md"
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "src/halimede").rglob("*.py")))
FLAGS = {flag for parameter in command.params for flag in parameter.opts}
OF_OTHERS = {"--wait", "--instance", "--head", "--num-cpus", "--resources", "--body"}


@pytest.mark.parametrize(
    "message", re.findall(r"^\| `(\D.*?)` \|", section(PAGE, "Troubleshooting"), re.M), ids=lambda each: each
)
def test_messages_are_those_that_are_printed(message: str) -> None:
    for part in message.split(" … "):
        assert part.removesuffix(" …") in SOURCE


def test_flags_are_those_that_there_are() -> None:
    text = re.sub(r"^(ray|export) .*$", "", PAGE.read_text(), flags=re.M)
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert {"--substrate", "--ray-address", "--capacity-wait"} <= used
    assert used - OF_OTHERS <= FLAGS
