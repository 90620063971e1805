"""SageMaker's instance types for hosting, and what each has: families, their sizes, and the exceptions to the rule.

A size says how many processors there are (``large`` 2, ``xlarge`` 4, ``2xlarge`` 8, …), and a family how much memory
comes with each. GPUs are NVIDIA's; Trainium, Inferentia and Gaudi accelerators are not counted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from halimede.hosting.substrates.base import Resources

_GIB = 1 << 30

_SMALL = {"medium": 1, "large": 2, "xlarge": 4}
_MULTIPLE = re.compile(r"([0-9]+)xlarge")


@dataclass(frozen=True, slots=True)
class _Family:
    """Instance types that differ in size only.

    Attributes:
        names: such as ``m5``; families that have the same.
        memory: GiB for each processor.
        sizes: such as ``large 2xlarge``.
        gpus: size → GPUs.
        others: size → processors and GiB of memory, where the rule does not hold.
    """

    names: str
    memory: Fraction | int
    sizes: str
    gpus: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def types(self) -> Iterator[tuple[str, Resources]]:
        for name in self.names.split():
            for size in self.sizes.split():
                processors = _processors(size)
                cpus, memory = self.others.get(size, (processors, processors * self.memory))
                yield f"ml.{name}.{size}", Resources(cpus, int(memory * _GIB), self.gpus.get(size, 0))


def _processors(size: str) -> int:
    match = _MULTIPLE.fullmatch(size)
    return _SMALL["xlarge"] * int(match[1]) if match else _SMALL[size]


_TO_4 = "large xlarge 2xlarge 4xlarge"
_TO_16 = f"{_TO_4} 8xlarge 12xlarge 16xlarge"
_TO_24 = f"{_TO_16} 24xlarge"
_ONE_GPU = dict.fromkeys(("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge"), 1)
_GPUS = {**_ONE_GPU, "12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
_NEWEST_GPUS = {**_ONE_GPU, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8}
_G_SIZES = "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge"
_G7_SIZES = "2xlarge 4xlarge 8xlarge 12xlarge 24xlarge 48xlarge"

_G7E_LARGEST = {"12xlarge": (48, 512), "24xlarge": (96, 1024), "48xlarge": (192, 2048)}
_P2_GPUS = {"xlarge": 1, "8xlarge": 8, "16xlarge": 16}

_FAMILIES: Sequence[_Family] = (
    # general purpose
    _Family("t2", 4, "medium large xlarge 2xlarge", others={"medium": (2, 4)}),
    _Family("m4", 4, "xlarge 2xlarge 4xlarge 10xlarge 16xlarge"),
    _Family("m5 m5d", 4, f"{_TO_4} 12xlarge 24xlarge"),
    _Family("m6g m6gd", 4, _TO_16),
    _Family("m6i", 4, f"{_TO_24} 32xlarge"),
    _Family("m7i", 4, f"{_TO_24} 48xlarge"),
    _Family("m8g", 4, f"medium {_TO_24} 48xlarge"),
    # much processor
    _Family("c4", Fraction(15, 8), f"{_TO_4} 8xlarge", others={"8xlarge": (36, 60)}),
    _Family("c5 c5d", 2, f"{_TO_4} 9xlarge 18xlarge"),
    _Family("c6g c6gd c6gn c7g", 2, _TO_16),
    _Family("c6i c6in", 2, f"{_TO_24} 32xlarge"),
    _Family("c7i", 2, f"{_TO_24} 48xlarge"),
    _Family("c8g", 2, f"medium {_TO_24} 48xlarge"),
    # much memory
    _Family("r5 r5d", 8, f"{_TO_4} 12xlarge 24xlarge"),
    _Family("r6g r6gd", 8, _TO_16),
    _Family("r7gd", 8, f"medium {_TO_16}"),
    _Family("r6i", 8, f"{_TO_24} 32xlarge"),
    _Family("r7i", 8, f"{_TO_24} 48xlarge"),
    _Family("r8g", 8, f"medium {_TO_24} 48xlarge"),
    # NVIDIA GPUs
    _Family("g4dn", 4, _G_SIZES, _GPUS),
    _Family("g5 g6", 4, f"{_G_SIZES} 24xlarge 48xlarge", _GPUS),
    _Family("g6e", 8, f"{_G_SIZES} 24xlarge 48xlarge", _GPUS),
    _Family("g7", 4, _G7_SIZES, _NEWEST_GPUS),
    _Family("g7e", 8, _G7_SIZES, _NEWEST_GPUS, _G7E_LARGEST),
    _Family("p2", Fraction(61, 4), "xlarge 8xlarge 16xlarge", _P2_GPUS, {"16xlarge": (64, 732)}),
    _Family("p3", Fraction(61, 8), "2xlarge 8xlarge 16xlarge", {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    _Family("p4d p4de", 12, "24xlarge", {"24xlarge": 8}),
    _Family("p5", 16, "4xlarge 48xlarge", {"4xlarge": 1, "48xlarge": 8}, {"48xlarge": (192, 2048)}),
    _Family("p5e p5en p6-b200", 0, "48xlarge", {"48xlarge": 8}, {"48xlarge": (192, 2048)}),
    _Family("p6-b300", 0, "48xlarge", {"48xlarge": 8}, {"48xlarge": (192, 4096)}),
    _Family("p6e-gb200", 0, "36xlarge", {"36xlarge": 4}, {"36xlarge": (144, 960)}),
    # other accelerators
    _Family("inf1", 2, "xlarge 2xlarge 6xlarge 24xlarge"),
    _Family("inf2", 4, "xlarge 8xlarge 24xlarge 48xlarge"),
    _Family("trn1", 4, "2xlarge 32xlarge"),
    _Family("trn1n", 4, "32xlarge"),
    _Family("trn2", 0, "48xlarge", others={"48xlarge": (192, 2048)}),
    _Family("dl1", 8, "24xlarge"),
)  # fmt: skip

INSTANCE_TYPES: Mapping[str, Resources] = dict(each for family in _FAMILIES for each in family.types())
"""The types by name."""
