import pytest

from halimede.bench.errors import BenchError
from halimede.tune.goal import Goal, Limit, Point


def point(throughput: float = 100, p99: float = 10, memory: float = 50, failures: float = 0) -> Point:
    return Point("1 at once", throughput, p99 / 2, p99 / 2, p99, p99, p99, memory, failures)


def test_goals_as_people_write_them() -> None:
    goal = Goal.parse("most throughput at p99 <= 20ms and memory <= 1GB")
    assert (goal.figure, goal.most, goal.rate) == ("throughput", True, 0)
    assert goal.limits == (Limit("p99", False, 20), Limit("memory", False, 1000))
    goal = Goal.parse("least memory at 200 requests/s")
    assert (goal.figure, goal.most, goal.rate, goal.limits) == ("memory", False, 200, ())
    goal = Goal.parse("least p50 at throughput >= 50")
    assert goal.limits == (Limit("throughput", True, 50),)
    assert Goal.parse("most throughput").limits == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fast", "is no goal: write 'most throughput at p99 <= 20ms'"),
        ("most memory", "write 'least memory'"),
        ("least throughput", "write 'most throughput'"),
        ("least memory", "needs a load: add a rate"),
        ("most throughput at 200 requests/s", "cannot have a rate"),
        ("most throughput at p99 <= 20", "is no time"),
        ("most throughput at p99 >= 20ms", "all others an upper one"),
        ("most throughput at size <= 20ms", "is no condition"),
        ("most throughput at memory <= 20ms", "is no size: write 500MB"),
        ("most throughput at p99 <= 0ms", "the limit must be above 0"),
    ],
)
def test_other_goals_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BenchError, match=reason):
        Goal.parse(text)


def test_points_over_a_limit_are_below_all_others() -> None:
    goal = Goal.parse("most throughput at p99 <= 20ms")
    order = [point(500, 60), point(400, 25), point(10, 20), point(90, 5)]
    assert sorted(order, key=goal.score) == order
    assert goal.best(order) is order[-1]
    least = Goal.parse("least memory at 100 requests/s and p99 <= 20ms")
    order = [point(30), point(100, 30), point(100, 10, 80), point(96, 10, 40)]
    assert sorted(order, key=least.score) == order
    assert goal.score(point(failures=0.01)) < 0
