"""Rules of composite alarms, such as ``ALARM(a) AND NOT (OK("b") OR FALSE)``.

A rule is read into the order in which it is computed, operands before their operator, so that deep brackets need no
deep stack.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from halimede.hosting.metering.alarms.states import AlarmState

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<function>[A-Za-z_]+)\s*\(\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^"()\s][^()]*?))\s*\)
        |(?P<word>[A-Za-z_]+)
        |(?P<bracket>[()])
    )""",
    re.VERBOSE,
)
_OPERATORS = {"OR": 1, "AND": 2, "NOT": 3}
"""How tightly each binds."""

_CONSTANTS = {"TRUE": True, "FALSE": False}
_STATES = tuple(AlarmState)
_MAX_ELEMENTS = 500
_MAX_ALARMS = 100
_MAX_SHOWN = 60


class RuleError(Exception):
    """A rule cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Condition:
    """An alarm is in a state.

    Attributes:
        state: the state.
        alarm: the alarm's name or ARN, as the rule says it.
    """

    state: AlarmState
    alarm: str


Step = Condition | bool | str
"""A condition, a constant, or an operator on what came before."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        steps: its operands and operators, each operator after its operands.
    """

    steps: Sequence[Step]

    @property
    def conditions(self) -> Iterator[Condition]:
        """All that it says of alarms."""
        return (step for step in self.steps if isinstance(step, Condition))

    def holds(self, state_of: Callable[[str], AlarmState | None]) -> bool:
        """Whether it is fulfilled.

        Args:
            state_of: the state of an alarm; None if there is no such alarm.
        """
        stack: list[bool] = []
        for step in self.steps:
            if isinstance(step, Condition):
                stack.append(state_of(step.alarm) is step.state)
            elif isinstance(step, bool):
                stack.append(step)
            elif step == "NOT":
                stack.append(not stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append((left and right) if step == "AND" else (left or right))
        return stack.pop()


def parse_rule(text: str) -> Rule:
    """Read a rule.

    Raises:
        RuleError: it cannot be read, or is too long.
    """
    if text != text.strip():
        raise RuleError("AlarmRule must not contain leading or trailing whitespace or be null")
    steps: list[Step] = []
    waiting: list[str] = []  # operators and opening brackets
    elements, wants_operand = 0, True
    for element, place in _tokens(text):
        elements += element not in _OPERATORS
        if elements > _MAX_ELEMENTS:
            raise RuleError(f"AlarmRule has more than {_MAX_ELEMENTS} elements")
        is_prefix = element in ("NOT", "(")
        if wants_operand != (is_prefix or isinstance(element, (Condition, bool))):
            wanted = "an alarm's state, TRUE, FALSE, NOT or (" if wants_operand else "AND, OR or )"
            raise _unexpected(text, place, wanted)
        if is_prefix:
            waiting.append(str(element))
        elif isinstance(element, (Condition, bool)):
            steps.append(element)
            wants_operand = False
        elif element == ")":
            while waiting and waiting[-1] != "(":
                steps.append(waiting.pop())
            if not waiting:
                raise _unexpected(text, place, "AND, OR or the end")
            waiting.pop()
        else:
            while waiting and waiting[-1] != "(" and _OPERATORS[waiting[-1]] >= _OPERATORS[element]:
                steps.append(waiting.pop())
            waiting.append(element)
            wants_operand = True
    if wants_operand:
        raise RuleError("AlarmRule ends where an alarm's state, TRUE or FALSE is expected")
    while waiting:
        if waiting[-1] == "(":
            raise RuleError("AlarmRule ends where ) is expected")
        steps.append(waiting.pop())
    rule = Rule(tuple(steps))
    if len({condition.alarm for condition in rule.conditions}) > _MAX_ALARMS:
        raise RuleError(f"AlarmRule has more than {_MAX_ALARMS} alarms")
    return rule


def _tokens(text: str) -> Iterator[tuple[Step, int]]:
    """Conditions, constants, operators and brackets, each with its place."""
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unexpected(text, place, "an alarm's state, an operator or a bracket")
        begin, place = match.end() - len(match[0].lstrip()), match.end()
        if match["bracket"]:
            yield match["bracket"], begin
            continue
        name = (match["function"] or match["word"]).upper()
        if match["word"] and name in _CONSTANTS:
            yield _CONSTANTS[name], begin
        elif name in _OPERATORS:
            yield name, begin
            place = begin + len(name)  # what follows in brackets is not an alarm's name
        elif match["function"] and name in _STATES:
            alarm = match["bare"] if match["quoted"] is None else re.sub(r"\\(.)", r"\1", match["quoted"])
            yield Condition(AlarmState(name), alarm), begin
        else:
            raise _unexpected(
                text,
                begin,
                f"one of {', '.join(_STATES)} with an alarm in brackets, AND, OR, NOT, TRUE or FALSE",
            )


def _unexpected(text: str, place: int, wanted: str) -> RuleError:
    found = text[place:].lstrip()[:_MAX_SHOWN]
    return RuleError(f"AlarmRule has '{found}' where {wanted} is expected")
