"""While an update is under way two fleets answer: each gets its share, and one steps in for the other."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.routing.selection import choose_variant
from halimede.hosting.routing.table import FleetRoute, VariantRoute
from tests.hosting.instances import FakeInstance, Received, Reply
from tests.hosting.routing.serving import (
    SMALL,
    Runtime,
    endpoint_route,
    instances,
    invoke,
    one_process,
    runtime,
    variant_route,
)


def new_fleet(share: float, *variants: VariantRoute) -> FleetRoute:
    for variant in variants:
        variant.config = "new"
    return FleetRoute("new", {variant.spec.name: variant for variant in variants}, share)


def answers_of(host: Runtime, count: int, **more: Any) -> list[bytes]:
    client = host.client()
    return [invoke(client, **more)["Body"].read() for _ in range(count)]


def says(instance: FakeInstance, text: bytes) -> FakeInstance:
    instance.invoke = lambda _: Reply(200, text)
    return instance


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_each_fleet_gets_its_share(share: float) -> None:
    with instances(2) as (old, new):
        fleet = new_fleet(share, variant_route("A", [says(new, b"new")]))
        with runtime(variant_route("A", [says(old, b"old")]), beside=[fleet]) as host:
            answers = answers_of(host, 200)
            assert answers.count(b"new") / 200 == pytest.approx(share, abs=0.17)
            assert answers.count(b"new") + answers.count(b"old") == 200
            assert host.is_idle


@one_process
@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.5, 0.9])
def test_shares_are_kept_within_two_per_cent(share: float) -> None:
    with instances(2) as (old, new):
        fleet = new_fleet(share, variant_route("A", [new], 3.0), variant_route("B", [new]))
        route = endpoint_route(variant_route("A", [old]), beside=[fleet])
        for wanted in (None, "A"):
            chosen = [choose_variant(route, wanted).config for _ in range(20_000)]
            assert chosen.count("new") / 20_000 == pytest.approx(share, abs=0.015)
        weighed = [choose_variant(route, None) for _ in range(20_000)]
        of_new = [each.spec.name for each in weighed if each.config]
        assert of_new.count("A") / len(of_new) == pytest.approx(0.75, abs=0.1)


def test_a_variant_that_only_one_fleet_has_is_found_there() -> None:
    with instances(2) as (old, new):
        fleet = new_fleet(0.5, variant_route("B", [says(new, b"new")]))
        with runtime(variant_route("A", [says(old, b"old")]), beside=[fleet]) as host:
            assert set(answers_of(host, 20, TargetVariant="A")) == {b"old"}
            assert set(answers_of(host, 20, TargetVariant="B")) == {b"new"}
            with pytest.raises(ClientError, match=r"Variant C not found .* Its variants are A, B"):
                invoke(host.client(), TargetVariant="C")


@pytest.mark.parametrize("missing", ["old", "new"])
def test_a_fleet_without_instances_gets_no_requests(missing: str) -> None:
    with instances(1) as (one,):
        there, none = variant_route("A", [says(one, b"there")]), variant_route("A", [])
        main, beside = (there, none) if missing == "new" else (none, there)
        with runtime(main, beside=[new_fleet(0.5, beside)]) as host:
            assert set(answers_of(host, 20)) == {b"there"}


@pytest.mark.parametrize("how", ["breaks off", "is gone"])
def test_the_other_fleet_answers_what_an_instance_that_ends_has_not(how: str) -> None:
    with instances(2) as (old, new):
        says(old, b"old")
        new.invoke = lambda _: Reply(200, b"", breaks=True)
        fleet = new_fleet(1.0, variant_route("A", [new]))
        if how == "is gone":
            new.close()
        else:

            def vanish(_: Received) -> Reply:
                raise ConnectionResetError

            new.invoke = vanish
        with runtime(variant_route("A", [old]), beside=[fleet]) as host:
            client = host.client()
            for number in range(20):
                answer = invoke(client, b"x" * number)
                assert answer["Body"].read() == b"old"
                assert answer["InvokedProductionVariant"] == "A"
            assert len(old.seen) == 20
            assert sorted(each.body for each in old.seen) == [b"x" * number for number in range(20)]
            assert host.is_idle


def test_what_neither_fleet_answers_is_an_error_once() -> None:
    with instances(2) as pair:
        for one in pair:

            def vanish(_: Received) -> Reply:
                raise ConnectionResetError

            one.invoke = vanish
        old, new = pair
        with (
            runtime(variant_route("A", [old]), beside=[new_fleet(0.5, variant_route("A", [new]))]) as host,
            pytest.raises(ClientError, match="No response from container"),
        ):
            invoke(host.client())
        assert (len(old.seen), len(new.seen)) == (1, 1)


def test_a_body_that_is_too_large_to_be_kept_is_not_sent_twice() -> None:
    def vanish(_: Received) -> Reply:
        raise ConnectionResetError

    with instances(2) as (old, new):
        new.invoke = vanish
        fleet = new_fleet(1.0, variant_route("A", [new]))
        with (
            runtime(variant_route("A", [old]), beside=[fleet], settings=SMALL) as host,
            pytest.raises(ClientError, match="No response from container"),
        ):
            invoke(host.client(), b"x" * 101)
        assert not old.seen


def test_an_error_that_an_instance_answers_with_is_passed_on() -> None:
    with instances(2) as (old, new):
        new.invoke = lambda _: Reply(500, b"wrong")
        fleet = new_fleet(1.0, variant_route("A", [new]))
        with (
            runtime(variant_route("A", [old]), beside=[fleet]) as host,
            pytest.raises(ClientError, match="Received server error"),
        ):
            invoke(host.client())
        assert not old.seen


def test_requests_of_each_fleet_are_counted_apart() -> None:
    with instances(2) as (old, new):
        before, after = variant_route("A", [old]), variant_route("A", [new])
        with runtime(before, beside=[new_fleet(0.5, after)]) as host:
            answers_of(host, 40)
            host.settle()
            assert len(before.meter.answers) == len(old.seen)  # type: ignore[attr-defined]
            assert len(after.meter.answers) == len(new.seen)  # type: ignore[attr-defined]
            assert len(old.seen) + len(new.seen) == 40
