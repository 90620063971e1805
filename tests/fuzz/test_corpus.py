"""Inputs that failed once, and those with which the search begins, are taken or refused as they should be."""

from pathlib import Path

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, SlowInputError, Target, check, recorded

HERE = [target for target in TARGETS.values() if not target.framework]

VALID = {
    "infer_json",
    "infer_binary",
    "infer_grpc",
    "inflate",
    "config_text",
    "templates",
    "archives",
    "s3_xml",
}
"""Targets whose seeds are taken, not refused."""


@pytest.mark.parametrize("target", HERE, ids=lambda target: target.name)
def test_seeds_are_decoded(target: Target) -> None:
    assert target.seeds
    for seed in target.seeds:
        target.run(seed) if target.name in VALID else check(target, seed)
        for end in range(0, len(seed), max(1, len(seed) // 20)):
            check(target, seed[:end])


@pytest.mark.parametrize(
    ("target", "path"),
    [
        pytest.param(target, path, id=f"{target.name}/{path.name}")
        for target in HERE
        for path in recorded(target.name)
    ],
)
def test_input_that_failed_once_does_not_fail_again(target: Target, path: Path) -> None:
    assert path.stat().st_size <= 1 << 20
    check(target, path.read_bytes())


def test_each_recorded_input_has_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= TARGETS.keys()


def test_what_is_not_allowed_is_found() -> None:
    def fail(data: bytes) -> None:
        raise KeyError(data)

    with pytest.raises(KeyError):
        check(Target("t", fail, (ValueError,), ()), b"x")
    check(Target("t", fail, (KeyError,), ()), b"x")


def test_what_takes_too_much_memory_is_found() -> None:
    def take(data: bytes) -> None:
        assert (data * (600 << 20)).endswith(data)

    for _ in range(2):  # also if something before has taken as much
        with pytest.raises(SlowInputError, match="MiB"):
            check(Target("t", take, (), ()), b"y")
