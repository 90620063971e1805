"""Instances that give no answer are not preferred because they have the fewest requests in flight."""

from collections import Counter

import pytest
from botocore.exceptions import ClientError

from tests.hosting.instances import Received, Reply
from tests.hosting.routing.serving import PROCESSES, instances, invoke, runtime, variant_route


def leave(_: Received) -> Reply:
    raise ConnectionResetError


@pytest.mark.parametrize("least_outstanding", [True, False])
def test_an_instance_that_breaks_off_gets_no_more_requests_for_a_moment(least_outstanding: bool) -> None:
    with instances(2) as fakes:
        fakes[0].invoke = leave
        route = variant_route("A", fakes, least_outstanding=least_outstanding)
        with runtime(route) as host:
            client = host.client()
            outcomes: Counter[str] = Counter()
            for _ in range(30):
                try:
                    invoke(client)
                    outcomes["answered"] += 1
                except ClientError:
                    outcomes["failed"] += 1
            # in a few seconds, each process meets it a few times
            assert outcomes["failed"] <= 4 * PROCESSES.count
            assert outcomes["answered"] >= 30 - 4 * PROCESSES.count
