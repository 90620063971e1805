import pytest

from benchmarks.expectation import Costs, expect, rate

IN_SERVER = Costs(engine=50, front_end=0, worker=0)
RELAYED = Costs(engine=10, front_end=40, worker=0)


@pytest.mark.parametrize(
    ("costs", "cores", "front_ends", "instances", "expected"),
    [
        (IN_SERVER, 8, 1, 0, (20_000, "the server's own process")),
        (RELAYED, 8, 2, 0, (50_000, "the front ends")),
        (RELAYED, 8, 4, 0, (100_000, "the server's own process")),
        (RELAYED, 2, 8, 0, (40_000, "the cores")),
        (Costs(20, 0, 100), 8, 1, 3, (30_000, "the instances")),
    ],
)
def test_slowest_part_is_the_limit(
    costs: Costs, cores: int, front_ends: int, instances: int, expected: tuple[float, str]
) -> None:
    found, limit = rate(costs, cores, front_ends, instances)
    assert found == pytest.approx(expected[0])
    assert limit == expected[1]


def test_front_ends_are_expected_only_where_cores_are_left_for_them() -> None:
    one = expect(IN_SERVER, RELAYED, 1)
    assert one.front_ends == 1
    assert one.rate == pytest.approx(20_000)
    sixteen = expect(IN_SERVER, RELAYED, 16)
    assert (sixteen.front_ends, sixteen.instances) == (4, 0)
    assert sixteen.rate == pytest.approx(100_000)


def test_as_many_instances_as_are_worth_it() -> None:
    alone, relayed = Costs(100, 0, 250), Costs(60, 80, 250)
    assert expect(alone, relayed, 4).instances == 3
    large = expect(alone, relayed, 64)
    assert (large.front_ends, large.instances) == (2, 5)
    assert large.limit == "the server's own process"
