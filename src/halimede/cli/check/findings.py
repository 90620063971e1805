"""What `halimede check` finds."""

from dataclasses import dataclass, field
from pathlib import Path

from halimede.config.locate import Locations
from halimede.config.model_config_pb2 import ModelConfig


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its place.

    Attributes:
        model: the model's name.
        file: the file, or the directory, that is wrong or lacks something.
        line: the line in it, 0 where it is none or unknown.
        field: path of the field of the configuration, "" if it is none.
        message: what is wrong.
        fix: what would fix it; "" if that cannot be told.
    """

    model: str
    file: Path
    line: int
    field: str
    message: str
    fix: str


@dataclass(slots=True)
class Examination:
    """What was found about a model.

    Attributes:
        name: its name.
        directory: its directory.
        config: its configuration as far as it could be completed.
        named_file: the `default_model_filename` that was written; "" for none.
        versions: the versions that its policy selects.
        findings: what is wrong.
        warnings: what is allowed, and may not do what it looks like; none are looked for if anything is wrong.
        locations: where the fields of its configuration stand.
    """

    name: str
    directory: Path
    config: ModelConfig = field(default_factory=ModelConfig)
    named_file: str = ""
    versions: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    locations: Locations = field(default_factory=Locations)
