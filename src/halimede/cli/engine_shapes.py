"""Shapes on the command line of `halimede build-engine`, written as for `trtexec`: ``name:1x3x224x224,other:1x10``."""

from collections.abc import Mapping, Sequence

from halimede.backends.tensorrt.engine import Bounds, Shape

Shapes = dict[str, Shape]


def parse_shapes(text: str) -> Shapes:
    """The shapes of one flag; an input's name may hold colons, and `scalar` stands for no dimensions.

    Raises:
        ValueError: the text is of another form.
    """
    shapes: Shapes = {}
    for entry in text.split(","):
        name, colon, sizes = entry.strip().rpartition(":")
        name = name.strip("'\"")
        if not colon or not name:
            msg = f"'{entry}' is not of the form NAME:1x3x224x224"
            raise ValueError(msg)
        if name in shapes:
            msg = f"'{name}' has two shapes; to build several optimization profiles, repeat the flag"
            raise ValueError(msg)
        if sizes == "scalar":
            shapes[name] = ()
            continue
        dims = sizes.split("x")
        if not all(size.isascii() and size.isdecimal() for size in dims):
            msg = f"'{sizes}', the shape of '{name}', is not of the form 1x3x224x224"
            raise ValueError(msg)
        shapes[name] = tuple(int(size) for size in dims)
    return shapes


def profiles_of(
    least: Sequence[Shapes], best: Sequence[Shapes], largest: Sequence[Shapes]
) -> list[Mapping[str, Bounds]]:
    """The optimisation profiles: the first of each flag make the first one, and so on.

    Where the best are left out altogether, they are the largest; where the least or the largest are, the best.

    Raises:
        ValueError: flags are given different numbers of times, or name different inputs, or a size is out of order.
    """
    best = best or largest or least
    least, largest = least or best, largest or best
    if not len(least) == len(best) == len(largest):
        msg = (
            f"--min-shapes, --opt-shapes and --max-shapes must be given once a profile each, got {len(least)}, "
            f"{len(best)} and {len(largest)}"
        )
        raise ValueError(msg)
    profiles: list[Mapping[str, Bounds]] = []
    for number, (low, middle, high) in enumerate(zip(least, best, largest, strict=True)):
        if not low.keys() == middle.keys() == high.keys():
            odd = sorted(
                (low.keys() | middle.keys() | high.keys()) - (low.keys() & middle.keys() & high.keys())
            )
            msg = f"profile {number}: '{odd[0]}' must be in --min-shapes, --opt-shapes and --max-shapes"
            raise ValueError(msg)
        profiles.append({name: _bounds(number, name, low[name], middle[name], high[name]) for name in middle})
    return profiles


def _bounds(number: int, name: str, low: Shape, middle: Shape, high: Shape) -> Bounds:
    bounds = Bounds(low, middle, high)
    if len(low) != len(high) or not bounds.hold(middle):
        msg = (
            f"profile {number}: the shapes of '{name}' must have as many dimensions each, and sizes must not fall from "
            f"the least over the best to the largest, got {list(low)}, {list(middle)} and {list(high)}"
        )
        raise ValueError(msg)
    return bounds
