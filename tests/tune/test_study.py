"""The search over servers that are only imagined."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from halimede.bench.errors import BenchError
from halimede.tune.explain import front, refine, verdict
from halimede.tune.goal import Goal, Point
from halimede.tune.knobs import Knob, Setting
from halimede.tune.report import html
from halimede.tune.study import Outcome, Study

KNOBS = [
    Knob("instances:m", (1, 2, 4, 8), 1, lambda _config, _value: None),
    Knob("isolation:m", ("none", "process"), "none", lambda _config, _value: None),
    Knob("batching:m", (False, True), False, lambda _config, _value: None),
]
GOAL = Goal.parse("most throughput at p99 <= 20ms")
TASK = {"model": "m", "goal": GOAL.text}


class Servers:
    """Servers that are the faster the more instances they have, up to four; batches help, processes do not matter."""

    def __init__(self) -> None:
        self.measured: list[dict[str, object]] = []
        self.interrupt_at = 0

    def __call__(self, setting: Setting) -> Sequence[Point]:
        if len(self.measured) + 1 == self.interrupt_at:
            self.interrupt_at = 0
            raise KeyboardInterrupt
        self.measured.append(dict(setting))
        instances = int(setting["instances:m"])
        if instances == 8:
            raise BenchError('E1128 loading.py:1] "no memory"')
        rate = 100.0 * instances * (1.5 if setting["batching:m"] else 1)
        return [
            Point("1 at once", rate / 2, 2, 2, 4, 4, 5, 50.0 * instances, batch=1),
            Point(
                "4 at once", rate, 5, 5, 9, 9, 12, 50.0 * instances, batch=2 if setting["batching:m"] else 1
            ),
            Point("8 at once", rate * 2, 9, 9, 40, 40, 60, 50.0 * instances),
        ]


def study(path: Path) -> Study:
    return Study(path, TASK, KNOBS, GOAL, seed=1)


def ignore(_number: int, _outcome: Outcome) -> None:
    return


def test_the_best_setting_is_found_and_explained(tmp_path: Path) -> None:
    servers, search = Servers(), study(tmp_path / "s")
    search.search(14, servers, ignore)
    best, effects = refine(search, KNOBS, GOAL, lambda setting: search.evaluate(setting, servers, ignore))
    assert best.setting == {"instances:m": 4, "isolation:m": "none", "batching:m": True}
    assert [(effect.knob, effect.after, effect.gain) for effect in effects] == [
        ("instances:m", 4, 3.0),
        ("batching:m", True, 0.5),
    ]
    assert effects[1].told.startswith(
        "batching:m: False → True (requests that arrive together share an execution)"
    )
    assert effects[1].told.endswith(": 1.5 times as good as without it")
    told = verdict(GOAL, search.outcomes[0], best)
    assert told[0].startswith("As it is: 100 requests/s (4 at once")
    assert told[2] == "That is 6 times as good."
    assert told[3] == "Batches have 2 rows on average, and had 1."
    assert len(servers.measured) == len({str(sorted(each.items())) for each in servers.measured})
    failed = [outcome for outcome in search.outcomes if outcome.error]
    assert {outcome.reason for outcome in failed} == {'"no memory"'}


def test_an_interrupted_search_goes_on_where_it_was(tmp_path: Path) -> None:
    path, servers = tmp_path / "s", Servers()
    servers.interrupt_at = 4
    with pytest.raises(KeyboardInterrupt):
        study(path).search(8, servers, ignore)
    assert len(servers.measured) == 3
    again = study(path)
    assert len(again.outcomes) == 3
    again.search(8, servers, ignore)
    assert len(again.outcomes) == len(servers.measured) == 8


def test_a_search_whose_process_was_killed_measures_its_last_setting_again(tmp_path: Path) -> None:
    path, servers = tmp_path / "s", Servers()

    class KilledError(BaseException):
        pass

    def killed(setting: Setting) -> Sequence[Point]:
        if len(servers.measured) == 2:
            raise KilledError(setting)
        return servers(setting)

    with pytest.raises(KilledError) as caught:
        study(path).search(8, killed, ignore)
    study(path).search(6, servers, ignore)
    assert caught.value.args[0] in servers.measured


def test_a_search_ends_when_everything_was_measured(tmp_path: Path) -> None:
    servers, search = Servers(), study(tmp_path / "s")
    assert not search.search(1000, servers, ignore)
    assert len(servers.measured) <= 16


def test_a_file_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    study(path)
    with pytest.raises(
        BenchError, match=r"holds another search .*'most throughput at p99 <= 20ms', and now 'other'"
    ):
        Study(path, {**TASK, "goal": "other"}, KNOBS, GOAL, seed=1)
    (tmp_path / "text").write_text("no journal\n")
    with pytest.raises(BenchError, match=r"cannot be used as the file of a search"):
        study(tmp_path / "text")


def test_a_model_that_cannot_be_measured_as_it_is(tmp_path: Path) -> None:
    def broken(_setting: Setting) -> Sequence[Point]:
        raise BenchError("does not load")

    with pytest.raises(BenchError, match="does not load"):
        study(tmp_path / "s").search(3, broken, ignore)


def test_the_front_has_no_point_that_another_one_beats(tmp_path: Path) -> None:
    servers, search = Servers(), study(tmp_path / "s")
    search.search(1000, servers, ignore)
    found = [(point.throughput, point.p99) for _, point in front(GOAL, search.outcomes)]
    assert found == [(300, 5), (600, 12), (1200, 60)]
    least = Goal.parse("least memory at 100 requests/s")
    assert [(point.memory, point.p99) for _, point in front(least, search.outcomes)] == [(50, 5)]


def test_the_page_shows_the_front(tmp_path: Path) -> None:
    servers, search = Servers(), study(tmp_path / "s")
    search.search(8, servers, ignore)
    best = search.best()
    page = html("a <title>", GOAL, KNOBS, search.outcomes, best, [], ["As it is."], "max_batch_size: 8")
    assert "<h1>a &lt;title&gt;</h1>" in page
    picture = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    names = [text.text for text in picture.iter("text")]
    assert {"all settings", "Pareto front", "as it is", "best"} <= set(names)
    assert "instances:m=8" in page
