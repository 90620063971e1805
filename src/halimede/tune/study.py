"""The search: Optuna proposes settings, each is measured, and a file keeps what was found."""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halimede.bench.errors import BenchError
from halimede.tune.goal import Goal, Point
from halimede.tune.knobs import Knob, Setting, Value, first_guesses, normalised, now

_POINTS = "points"
_ERROR = "error"
_SETTING = "setting"
_TASK = "task"
_REPEATS = 30
"""So many proposals in a row that were measured before end the search."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A setting that was measured.

    Attributes:
        setting: a value for each knob.
        points: one for each level of load; none if it failed.
        error: why it failed.
    """

    setting: dict[str, Value]
    points: tuple[Point, ...]
    error: str = ""

    @property
    def reason(self) -> str:
        """The error in a line, without what a log has in front of it."""
        line = self.error.strip().splitlines()[-1] if self.error else ""
        return line.partition("] ")[2] or line

    def score(self, goal: Goal) -> float:
        """The score of its best point; the lowest if it failed."""
        return goal.score(goal.best(self.points)) if self.points else float("-inf")


Measure = Callable[[Setting], Sequence[Point]]


class Study:
    """The outcomes of a search, kept in a file, and what is tried next.

    Raises:
        BenchError: Optuna is not installed, or the file holds another search.
    """

    def __init__(
        self, path: Path, task: dict[str, Any], knobs: Sequence[Knob], goal: Goal, seed: int
    ) -> None:
        try:
            import optuna
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend
        except ImportError:
            raise BenchError("halimede tune needs Optuna: pip install 'halimede[tune]'") from None
        self._optuna = optuna
        self._knobs = knobs
        self._goal = goal
        self._path = path
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                storage = JournalStorage(JournalFileBackend(str(path)))
            self._study = optuna.create_study(
                storage=storage,
                study_name="halimede tune",
                direction="maximize",
                sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=8, multivariate=False),
                load_if_exists=True,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{path} cannot be used as the file of a search: {error}") from None
        self._check(task)
        self._give_up_interrupted()

    def _check(self, task: dict[str, Any]) -> None:
        """The file is for the same task."""
        earlier = self._study.user_attrs.get(_TASK)
        if earlier is None:
            self._study.set_user_attr(_TASK, task)
            return
        differing = [name for name in task if task[name] != earlier.get(name)]
        if differing:
            told = "; ".join(f"{name}: {earlier.get(name)!r}, and now {task[name]!r}" for name in differing)
            raise BenchError(f"{self._path} holds another search ({told}): give another file with --study")

    def _give_up_interrupted(self) -> None:
        """Settings that were being measured when the search was ended are measured again."""
        running = self._optuna.trial.TrialState.RUNNING
        for trial in self._study.get_trials(deepcopy=False, states=(running,)):
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            if trial.params:
                self._study.enqueue_trial(trial.params)

    @property
    def outcomes(self) -> list[Outcome]:
        """All settings that were measured, each once, in their order."""
        found: dict[str, Outcome] = {}
        for trial in self._study.get_trials(deepcopy=False):
            attributes = trial.user_attrs
            if _SETTING in attributes and (_POINTS in attributes or _ERROR in attributes):
                points = tuple(Point(**each) for each in attributes.get(_POINTS, []))
                outcome = Outcome(attributes[_SETTING], points, attributes.get(_ERROR, ""))
                found.setdefault(_key(outcome.setting), outcome)
        return list(found.values())

    def search(self, count: int, measure: Measure, show: Callable[[int, Outcome], None]) -> bool:
        """Measure settings until so many were measured in all; false if nothing new is proposed before.

        The first one is the setting as it is now.

        Raises:
            BenchError: the setting as it is now cannot be measured.
        """
        if not self.outcomes:
            for setting in (now(self._knobs), *first_guesses(self._knobs)):
                self._study.enqueue_trial(setting, skip_if_exists=True)
        repeats = 0
        while len(self.outcomes) < count:
            trial = self._study.ask(self._distributions())
            setting = normalised(self._knobs, trial.params)
            known = self.find(setting)
            if known is not None:
                self._tell(trial, known)
                repeats += 1
                if repeats == _REPEATS:
                    return False
                continue
            repeats = 0
            self._measure(trial, setting, measure, show)
        return True

    def evaluate(self, setting: Setting, measure: Measure, show: Callable[[int, Outcome], None]) -> Outcome:
        """The outcome of one setting, which is measured unless it was before."""
        setting = normalised(self._knobs, setting)
        known = self.find(setting)
        if known is not None:
            return known
        self._study.enqueue_trial(dict(setting))
        while True:  # what was waiting from before comes first
            trial = self._study.ask(self._distributions())
            asked = normalised(self._knobs, trial.params)
            known = self.find(asked)
            if known is not None:
                self._tell(trial, known)
            else:
                known = self._measure(trial, asked, measure, show)
            if asked == setting:
                return known

    def _measure(
        self, trial: Any, setting: dict[str, Value], measure: Measure, show: Callable[[int, Outcome], None]
    ) -> Outcome:
        try:
            outcome = Outcome(setting, tuple(measure(setting)))
        except BenchError as error:
            outcome = Outcome(setting, (), str(error))
            if setting == now(self._knobs):
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                raise
        except KeyboardInterrupt:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            self._study.enqueue_trial(trial.params)
            raise
        self._tell(trial, outcome)
        show(len(self.outcomes), outcome)
        return outcome

    def _tell(self, trial: Any, outcome: Outcome) -> None:
        trial.set_user_attr(_SETTING, outcome.setting)
        if outcome.error:
            trial.set_user_attr(_ERROR, outcome.error)
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        else:
            trial.set_user_attr(_POINTS, [point.to_json() for point in outcome.points])
            self._study.tell(trial, outcome.score(self._goal))

    def find(self, setting: Setting) -> Outcome | None:
        """What a setting brought; None if it was not measured."""
        wanted = _key(setting)
        return next((each for each in self.outcomes if _key(each.setting) == wanted), None)

    def best(self) -> Outcome:
        """The outcome with the highest score."""
        return max(self.outcomes, key=lambda each: each.score(self._goal))

    def _distributions(self) -> dict[str, Any]:
        categorical = self._optuna.distributions.CategoricalDistribution
        return {knob.name: categorical(knob.choices) for knob in self._knobs}


def _key(setting: Setting) -> str:
    return json.dumps(dict(setting), sort_keys=True)
