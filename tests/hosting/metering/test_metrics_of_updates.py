"""Metrics while an update is under way: those of a fleet also under the name of its configuration."""

from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.counts import InvocationCounts
from halimede.hosting.routing.table import EndpointRoute, FleetRoute, Target, VariantRoute
from halimede.hosting.specs import Container, Variant
from halimede.http1.upstream import UpstreamPool
from tests.hosting.metering.serving import HOUR, NOON, SCOPE, Metered, metered, moment

E = EndpointId(*SCOPE, "e")
VARIANT = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]
NEW = [{"Name": "EndpointConfigName", "Value": "new"}, *VARIANT]


def total(host: Metered, metric: str, dimensions: list[dict[str, str]]) -> list[tuple[float, float]]:
    """Sum and number of values of each minute."""
    points = host.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker", MetricName=metric, Dimensions=dimensions, StartTime=moment(NOON - HOUR),
        EndTime=moment(NOON + HOUR), Period=60, Statistics=["Sum", "SampleCount"],
    )["Datapoints"]  # fmt: skip
    return [
        (point["Sum"], point["SampleCount"]) for point in sorted(points, key=lambda each: each["Timestamp"])
    ]


def meters(host: Metered) -> Any:
    """The meters of an old and a new fleet, which do not serve yet."""
    return host.loop.call(lambda: (host.metering.meter(E, "v"), host.metering.meter(E, "v", "new")))


def publish(host: Metered) -> Any:
    """Have two fleets, of which the new one gets 10 %: their meters."""
    old, new = meters(host)

    def put() -> None:
        spec = Variant("v", "m", Container("x"), "ml.local.cpu")
        of_old = VariantRoute(spec, 1.0, [Target("i-1", UpstreamPool("127.0.0.1", 1), 1)], meter=old)
        of_new = VariantRoute(
            spec, 1.0, [Target("i-2", UpstreamPool("127.0.0.1", 1), 2)], meter=new, config="new"
        )
        beside = [FleetRoute("new", {"v": of_new}, 0.1)]
        host.table.publish(
            EndpointRoute("e", "arn", SCOPE.region, SCOPE.account, "old", {"v": of_old}, beside)
        )

    host.loop.call(put)
    return old, new


def test_requests_of_the_new_fleet_are_counted_twice_and_those_of_the_old_one_once(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        old, new = publish(host)
        for meter, status in [(old, 200)] * 3 + [(new, 200), (new, 500)]:
            host.count(partial(meter.sent, 1))
            host.count(partial(meter.ended, status, 5_000, 1_000, model_error=status == 500))
        host.tick(NOON + 1)
        assert total(host, "Invocations", VARIANT) == [(5, 5)]
        assert total(host, "Invocations", NEW) == [(2, 2)]
        assert total(host, "Invocation5XXErrors", VARIANT) == [(1, 5)]
        assert total(host, "Invocation5XXErrors", NEW) == [(1, 2)]
        assert total(host, "ModelLatency", NEW) == [(10, 2)]
        assert total(host, "ConcurrentRequestsPerModel", VARIANT) == [(3, 2)]


def test_what_routers_have_counted_goes_to_the_configuration_too(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        publish(host)
        for config in ("", "new", "new"):
            counts = InvocationCounts(sent=4, per_instance=4)
            host.count(partial(host.metering.absorb, E, "v", config, counts))
        host.tick(NOON + 1)
        assert total(host, "Invocations", VARIANT) == [(12, 12)]
        assert total(host, "Invocations", NEW) == [(8, 8)]


def test_quiet_minutes_of_a_new_fleet_have_zeros(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        publish(host)
        host.tick(NOON + 60)
        assert total(host, "Invocations", NEW) == [(0, 1)]
        assert total(host, "Invocations", VARIANT) == [(0, 1)]


def test_an_alarm_on_the_new_configuration_goes_off_by_its_requests_alone(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        old, new = publish(host)
        host.client("cloudwatch").put_metric_alarm(
            AlarmName="errors", MetricName="Invocation5XXErrors", Namespace="AWS/SageMaker", Dimensions=NEW,
            Statistic="Average", Period=60, EvaluationPeriods=1, Threshold=0.1,
            ComparisonOperator="GreaterThanThreshold", TreatMissingData="notBreaching",
        )  # fmt: skip
        host.count(lambda: old.ended(500, 1, 1, model_error=True))
        host.tick(NOON + 61)
        host.tick(NOON + 63)
        alarm = host.alarms.find(SCOPE, "errors")
        assert alarm is not None
        assert (alarm.state, alarm.alarmed) == ("OK", 0.0)
        host.count(lambda: new.ended(500, 1, 1, model_error=True))
        host.tick(NOON + 119)
        host.tick(NOON + 123)
        assert (alarm.state, alarm.alarmed) == ("ALARM", NOON + 123)


def test_instances_that_take_long_to_start_are_counted(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        _, new = meters(host)
        for hours in range(1, 4):
            host.tick(NOON + hours * HOUR)
        publish(host)
        host.count(lambda: new.sent(1))
        host.tick(NOON + 3 * HOUR + 1)
        labels = 'endpoint="e",variant="v"} 1'
        with urlopen(f"http://127.0.0.1:{host.port}/metrics") as page:
            found = [line for line in page.read().decode().splitlines() if line.endswith(labels)]
        assert [line.partition("{")[0] for line in found] == [
            "halimede_host_invocations_total",
            "halimede_host_invocations_per_instance_total",
        ]


def test_what_was_replaced_long_ago_is_not_counted_apart_any_more(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        _, new = publish(host)
        host.count(lambda: new.sent(1))
        host.tick(NOON + 60)
        host.loop.call(host.table.withdraw, E)
        host.tick(NOON + 120)
        assert host.metering._config_meters  # noqa: SLF001 - a leak shows nowhere else
        host.tick(NOON + 2 * HOUR)
        assert not host.metering._config_meters  # noqa: SLF001 - a leak shows nowhere else
        assert host.loop.call(host.metering.meters) != {}


def test_prometheus_has_each_variant_once(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        _, new = publish(host)
        host.count(lambda: new.sent(1))
        with urlopen(f"http://127.0.0.1:{host.port}/metrics") as page:
            lines = page.read().decode().splitlines()
        labels = 'account="000000000000",region="us-east-1",endpoint="e",variant="v"'
        labels = labels.replace("us-east-1", SCOPE.region).replace("000000000000", SCOPE.account)
        assert lines.count(f"halimede_host_instances{{{labels}}} 2") == 1
        assert lines.count(f"halimede_host_invocations_total{{{labels}}} 1") == 1
