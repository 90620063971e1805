"""Searches for an input that one target fails with: `python -m tests.fuzz.search TARGET SECONDS DIRECTORY`.

The fuzzer is atheris, which follows the branches that inputs take. Where it is not installed, hypothesis changes the
seeds, and prefers what runs through more lines. The directory gets the inputs that were worth keeping (`corpus`) and
one that failed (`crash-…`, `timeout-…`, `oom-…`). The last line that is printed tells the number of inputs.
"""

import sys
import time
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

_TIMEOUT_S = 20
_MEBIBYTES = 4096


def _with_atheris(name: str, seconds: int, place: Path) -> None:
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # installed by `make fuzz` alone

    with atheris.instrument_imports(include=["halimede", "hpack"], enable_loader_override=False):
        from tests.fuzz.targets import CORPUS, TARGETS, check

    target = TARGETS[name]
    corpus = _begin(target, place)
    recorded = [str(CORPUS / name)] if (CORPUS / name).is_dir() else []
    options = [
        f"-max_total_time={seconds}",
        f"-timeout={_TIMEOUT_S}",
        f"-rss_limit_mb={_MEBIBYTES}",
        f"-max_len={target.longest}",
        f"-artifact_prefix={place}/",
        "-print_final_stats=1",
    ]

    def one(data: bytes) -> None:
        try:
            check(target, data)
        except BaseException:
            _keep(place, data)
            raise

    atheris.Setup([sys.argv[0], *options, str(corpus), *recorded], one)
    atheris.Fuzz()


def _with_hypothesis(name: str, seconds: int, place: Path) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from hypothesis import target as prefer

    from tests.fuzz.targets import TARGETS, check, recorded

    target = TARGETS[name]
    _begin(target, place)
    seeds = [*target.seeds, *(path.read_bytes() for path in recorded(name))]
    ends = time.monotonic() + seconds
    count = 0
    changes = st.lists(
        st.tuples(st.integers(0, target.longest), st.binary(max_size=8), st.integers(0, 8)), max_size=6
    )

    @settings(
        max_examples=1_000_000_000,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(seeds), changes)
    def search(data: bytes, changes: list[tuple[int, bytes, int]]) -> None:
        nonlocal count
        if time.monotonic() > ends:
            raise KeyboardInterrupt
        for at, put, taken in changes:
            at %= len(data) + 1
            data = (data[:at] + put + data[at + taken :])[: target.longest]
        count += 1
        lines: set[tuple[str, int]] = set()

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if "halimede" in frame.f_code.co_filename:
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        sys.settrace(trace)
        try:
            check(target, data)
        except BaseException:
            _keep(place, data)
            raise
        finally:
            sys.settrace(None)
        prefer(float(len(lines)))

    try:
        search()
    except KeyboardInterrupt:
        pass
    finally:
        sys.stderr.write(f"stat::number_of_executed_units: {count}\n")


def _keep(place: Path, data: bytes) -> None:
    """Keep an input that failed, under the name that the fuzzer of atheris gives it if it does so itself."""
    (place / f"crash-{sha1(data, usedforsecurity=False).hexdigest()}").write_bytes(data)


def _begin(target: "Target", place: Path) -> Path:
    """The directory of what is worth keeping, with the seeds in it."""
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        with suppress(*target.allowed):
            target.run(seed)  # what is imported with the first ones takes its time
        (corpus / f"seed-{number}").write_bytes(seed)
    return corpus


def main() -> None:
    """Search."""
    name, seconds, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    del sys.argv[1:]
    try:
        import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401 - whether it is installed
    except ImportError:
        _with_hypothesis(name, seconds, place)
    else:
        _with_atheris(name, seconds, place)


if __name__ == "__main__":
    main()
