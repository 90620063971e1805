"""A host that ends in the midst of scaling goes on when it is started again; endpoints that go take targets along."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.control.database import DatabaseError, Statement
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import EndpointId, Scope
from tests.hosting.scaling.serving import SCOPE, TARGET, Scaled

SET_3 = "Setting desired instance count to 3."


@pytest.fixture(autouse=True)
def _tracked(host: Scaled) -> None:
    host.register(1, 10)
    host.track()


def kill_in_change(host: Scaled, *, set_before: bool) -> None:
    """The host ends after a change has been written down, before or after it has been begun."""
    set_count = host.variants.set_count

    async def die(endpoint: EndpointId, variant: str, count: int) -> None:
        if set_before:
            await set_count(endpoint, variant, count)
        raise asyncio.CancelledError

    host.variants.set_count = die  # type: ignore[method-assign]
    host.evaluate(host.high, 30.0)
    with pytest.raises(CancelledError):
        host.tick()
    host.variants.set_count = set_count  # type: ignore[method-assign]
    host.restart()


def test_what_is_known_is_there_again(host: Scaled) -> None:
    host.evaluate(host.high, 30.0)
    host.tick()
    host.settle()
    client = host.client()
    before = [
        client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"],
        client.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"],
        host.activities(),
    ]
    host.restart()
    assert before == [
        client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"],
        client.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"],
        host.activities(),
    ]


def test_a_change_that_goes_on_is_followed(host: Scaled) -> None:
    host.evaluate(host.high, 30.0)
    host.tick()
    host.restart()
    assert host.statuses() == [(SET_3, "InProgress")]
    host.tick()
    host.settle()
    assert host.statuses() == [(SET_3, "Successful")]
    assert host.variant.set_to == [3]


def test_a_change_that_had_not_been_begun_is_begun(host: Scaled) -> None:
    kill_in_change(host, set_before=False)
    assert host.statuses() == [(SET_3, "Pending")]
    host.tick()
    assert host.statuses() == [(SET_3, "InProgress")]
    host.settle()
    assert host.statuses() == [(SET_3, "Successful")]
    assert host.variant.set_to == [3]


def test_a_change_that_had_been_begun_is_not_begun_again(host: Scaled) -> None:
    kill_in_change(host, set_before=True)
    host.tick()
    host.settle()
    assert host.statuses() == [(SET_3, "Successful")]
    assert host.variant.set_to == [3]


def test_a_change_that_the_target_does_not_allow_any_more_is_not_begun(host: Scaled) -> None:
    kill_in_change(host, set_before=False)
    host.register(1, 2)
    host.tick()
    assert host.statuses() == [(SET_3, "Failed")]
    assert host.variant.set_to == []


def test_a_cooldown_goes_on(host: Scaled) -> None:
    host.evaluate(host.high, 30.0)
    host.tick()
    host.settle()
    host.restart()
    host.evaluate(host.high, 30.0)
    host.tick(200)
    assert host.variant.set_to == [3]
    host.evaluate(host.high, 30.0)
    host.tick(100)
    assert host.variant.set_to == [3, 9]


def test_bounds_that_have_not_been_applied_are(host: Scaled) -> None:
    host.variant.refusal = invalid("not now")
    host.register(4, 10)
    host.restart()
    host.variant.refusal = None
    host.tick()
    assert host.variant.set_to == [4]


def test_what_cannot_be_written_down_is_not_done(host: Scaled, caplog: pytest.LogCaptureFixture) -> None:
    activities = host.autoscaling._state.activities  # noqa: SLF001 - to have it fail
    put = activities.put

    async def full(_: object) -> None:
        raise ApiError("InternalFailure", "database or disk is full", 500)

    activities.put = full  # type: ignore[method-assign, assignment]
    host.evaluate(host.high, 30.0)
    host.tick()
    assert host.variant.set_to == []
    assert "endpoint/e/variant/A cannot be scaled: database or disk is full" in caplog.text
    activities.put = put  # type: ignore[method-assign]
    host.evaluate(host.high, 30.0)
    host.tick()
    assert host.variant.set_to == [3]


def test_a_file_that_is_no_database_is_told(host: Scaled, tmp_path: Path) -> None:
    host.loop.run(host.autoscaling.stop())
    path = tmp_path / "scaling.db"
    kept = path.read_bytes()
    for each in tmp_path.glob("scaling.db-*"):
        each.unlink()
    path.write_bytes(b"this is no database, " * 100)
    with pytest.raises(DatabaseError, match=r"cannot use .*scaling\.db"):
        host.loop.run(host.start())
    path.write_bytes(kept)
    host.loop.run(host.start())


# endpoints


def describe(host: Scaled) -> list[str]:
    found = host.client().describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    return [target["ResourceId"] for target in found]


def test_an_endpoint_that_goes_takes_its_targets_and_alarms_along(host: Scaled) -> None:
    host.add("f", "A")
    host.register(ResourceId="endpoint/f/variant/A")
    host.loop.call(host.autoscaling.forget, EndpointId(*SCOPE, "e"))
    host.tick()
    assert describe(host) == ["endpoint/f/variant/A"]
    assert host.alarms.alarms == {}
    host.restart()
    assert describe(host) == ["endpoint/f/variant/A"]


def test_an_alarm_that_others_need_does_not_keep_the_target_of_an_endpoint_that_goes(host: Scaled) -> None:
    host.alarms.deletion = ApiError("ValidationError", "there are composite alarm(s) depending on it")
    host.loop.call(host.autoscaling.forget, EndpointId(*SCOPE, "e"))
    host.tick()
    assert describe(host) == []


def test_an_endpoint_that_goes_leaves_those_of_other_regions(host: Scaled) -> None:
    host.loop.call(host.autoscaling.forget, EndpointId(*Scope(region="eu-west-1"), "e"))
    host.tick()
    assert describe(host) == [TARGET["ResourceId"]]


def test_an_endpoint_that_went_while_the_host_did_not_run_takes_its_targets_along(host: Scaled) -> None:
    host.variant.is_gone = True
    host.restart()
    assert describe(host) == []
    assert host.alarms.alarms == {}


@pytest.mark.parametrize(
    ("instance_types", "is_refused"),
    [
        ({"A": "ml.local.cpu"}, False),
        ({"A": "ml.local.cpu", "B": "ml.local.gpu"}, False),
        ({"A": "ml.local.gpu"}, True),
        ({"B": "ml.local.cpu"}, True),
    ],
)
def test_updates_that_would_take_a_target_away_are_refused(
    host: Scaled, instance_types: dict[str, str], is_refused: bool
) -> None:
    endpoint = EndpointId(*SCOPE, "e")
    check = host.autoscaling.check_update
    if not is_refused:
        host.loop.call(check, endpoint, instance_types)
        return
    with pytest.raises(ApiError) as raised:
        host.loop.call(check, endpoint, instance_types)
    assert raised.value.message == (
        'The variant(s) "[A]" must be deregistered as scalable targets with AWS Auto Scaling before they can be '
        "removed or have their instance type updated."
    )
    host.client().deregister_scalable_target(**TARGET)
    host.loop.call(check, endpoint, instance_types)


@pytest.mark.parametrize("writes", range(4))
def test_a_target_goes_with_all_that_it_has_or_stays_with_it(host: Scaled, writes: int) -> None:
    """However many writes succeed before the disk is full, and whether the host is started again or not."""
    client = host.client()
    client.put_scheduled_action(
        **TARGET, ScheduledActionName="x", Schedule="rate(1 day)", ScalableTargetAction={"MinCapacity": 1}
    )
    database = host.autoscaling._state._database  # noqa: SLF001 - nothing else fails at a certain write
    write, left = database._write, [writes]  # noqa: SLF001

    async def fail(statements: Iterable[Statement]) -> None:
        if not left[0]:
            raise ApiError("InternalFailure", "database or disk is full", 500)
        left[0] -= 1
        await write(statements)

    database._write = fail  # type: ignore[method-assign]  # noqa: SLF001
    with suppress(ClientError):
        client.deregister_scalable_target(**TARGET)
    database._write = write  # type: ignore[method-assign]  # noqa: SLF001

    def there() -> list[int]:
        namespace = {"ServiceNamespace": "sagemaker"}
        return [
            len(client.describe_scalable_targets(**namespace)["ScalableTargets"]),
            len(client.describe_scaling_policies(**namespace)["ScalingPolicies"]),
            len(client.describe_scheduled_actions(**namespace)["ScheduledActions"]),
            len(host.alarms.alarms) // 2,
        ]

    assert there() == [int(not writes)] * 4
    host.restart()
    assert there() == [int(not writes)] * 4


class Steps:
    """Lets so many steps of an operation be done, on the disk or on alarms, and none afterwards: as a kill does."""

    def __init__(self, host: Scaled, allowed: int) -> None:
        self._host = host
        self._left = allowed
        self.is_over = False

    def __enter__(self) -> Self:
        database = self._host.autoscaling._state._database  # noqa: SLF001 - nothing else fails at a certain write
        self._undo = ExitStack()
        for owner, name in ((database, "_write"), (self._host.alarms, "put"), (self._host.alarms, "delete")):
            self._undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, self._limited(getattr(owner, name)))
        return self

    def _limited(self, step: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def limited(*arguments: Any) -> None:
            if not self._left:
                self.is_over = True
                raise ApiError("InternalFailure", "the host is gone", 500)
            self._left -= 1
            await step(*arguments)

        return limited

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def policy_and_alarms(host: Scaled) -> tuple[list[Any], list[tuple[str, float]]]:
    """The targets and alarms of the policies, and which alarms there are, with their thresholds."""
    found = host.client().describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    policies = [
        (
            policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"],
            [alarm["AlarmName"] for alarm in policy["Alarms"]],
        )
        for policy in found
    ]
    alarms = [(name, alarm.request["Threshold"]) for (_, name), alarm in host.alarms.alarms.items()]
    return policies, alarms


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("allowed", range(8))
@pytest.mark.parametrize(
    "change",
    [
        {"TargetValue": 70.0},
        {"TargetValue": 70.0, "DisableScaleIn": True},
        {"policy": "q"},
        {"delete": True},
        {"deregister": True},
    ],
)
def test_a_policy_and_its_alarms_fit_after_a_kill_at_any_step(
    host: Scaled, change: dict[str, Any], allowed: int, restarted: bool
) -> None:
    with Steps(host, allowed) as steps, suppress(ClientError):
        if "delete" in change:
            host.client().delete_scaling_policy(**TARGET, PolicyName="p")
        elif "deregister" in change:
            host.client().deregister_scalable_target(**TARGET)
        elif "policy" in change:
            host.track(change["policy"])
        else:
            host.track(**change)
    if steps.is_over or restarted:
        host.restart()
    policies, alarms = policy_and_alarms(host)
    expected: dict[str, float] = {}
    for target, names in policies:
        expected |= dict(zip(names, (target, target * 0.9), strict=False))
    assert dict(alarms) == pytest.approx(expected)
    host.restart()
    assert policy_and_alarms(host)[0] == policies


def test_a_policy_whose_deletion_fails_keeps_its_alarms(host: Scaled) -> None:
    before = policy_and_alarms(host)
    database = host.autoscaling._state._database  # noqa: SLF001 - nothing else fails at a certain write
    write = database._write  # noqa: SLF001

    async def fail(_: Iterable[Statement]) -> None:
        raise ApiError("InternalFailure", "database or disk is full", 500)

    database._write = fail  # type: ignore[method-assign, assignment]  # noqa: SLF001
    with pytest.raises(ClientError, match="disk is full"):
        host.client().delete_scaling_policy(**TARGET, PolicyName="p")
    database._write = write  # type: ignore[method-assign]  # noqa: SLF001
    assert policy_and_alarms(host) == before
