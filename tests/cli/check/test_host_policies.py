"""`--host-policy`: what it describes, and what is refused; texts are tritonserver's where it has one."""

import os
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.cli.check import host_policies as module
from halimede.cli.check.host_policies import host_policies
from halimede.core.host_policies import HostPolicy, policy_of

CPU = min(os.sched_getaffinity(0))
CORES = f"cpu-cores={CPU}-{CPU}"


def refusal(*entries: str) -> str:
    with pytest.raises(click.UsageError) as caught:
        host_policies(entries)
    return caught.value.message


def test_policies_by_name() -> None:
    assert host_policies([]) == {}
    policies = host_policies([f"a,{CORES}", f"b,cpu-cores={CPU}-{CPU + 9}"])
    assert policies == {"a": HostPolicy((CPU,)), "b": HostPolicy(tuple(range(CPU, CPU + 10)))}


def test_of_a_setting_that_is_given_again_the_last_value_holds() -> None:
    assert host_policies([f"a,cpu-cores={CPU}-{CPU + 9}", f"a,{CORES}"]) == {"a": HostPolicy((CPU,))}


def test_trying_a_policy_changes_nothing() -> None:
    before = os.sched_getaffinity(0)
    host_policies([f"a,{CORES}"])
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    "entry", ["", "a", "a,", "a,cpu-cores", "a,cpu-cores=", ",cpu-cores=0-0", "cpu-cores=0-0"]
)
def test_what_is_malformed_is_refused(entry: str) -> None:
    assert refusal(entry) == f"--host-policy option format is '<policy_name>,<setting>=<value>'. Got {entry}"


def test_an_unknown_setting_is_refused() -> None:
    assert refusal("a,foo=1") == (
        "Unsupported host policy setting 'foo' is specified, supported settings are 'numa-node', 'cpu-cores'"
    )


@pytest.mark.parametrize(
    "text", ["x", "0", "0-", "-0", "1-0", "0-1-2", "-1-0", "0-x", "²-²", f"0-{10**9}", f"0-{'9' * 5000}"]
)
def test_cores_that_are_no_range_are_refused(text: str) -> None:
    assert refusal(f"a,cpu-cores={text}") == (
        f"host policy setting 'cpu-cores' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got {text}"
    )


def test_cores_that_are_not_there_are_refused() -> None:
    message = refusal("a,cpu-cores=8000-8001")
    assert message.startswith(
        "--host-policy a,cpu-cores=8000-8001: this machine does not grant it: Invalid argument"
    )
    assert f"This process may use the CPUs {', '.join(map(str, sorted(os.sched_getaffinity(0))))};" in message


@pytest.mark.parametrize("text", ["x", "-1", "4096", "0,1"])
def test_a_node_that_is_not_there_is_refused(text: str) -> None:
    assert refusal(f"a,numa-node={text}").startswith(
        f"host policy setting 'numa-node': there is no NUMA node '{text}' on this machine; there are: "
    )


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with two nodes, which grants everything."""
    for name, cpus in {"node0": "0-1,4\n", "node1": "2-3\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(cpus)
    monkeypatch.setattr(module, "_NODES", tmp_path)
    monkeypatch.setattr("halimede.core.host_policies.place", lambda cpus, node: None)
    monkeypatch.setattr("halimede.core.host_policies.release_memory", lambda: None)
    return tmp_path


def test_a_node_brings_its_cores(nodes: Path) -> None:
    assert host_policies(["a,numa-node=0"]) == {"a": HostPolicy((0, 1, 4), 0)}
    assert host_policies(["a,numa-node=1", "a,cpu-cores=0-0"]) == {"a": HostPolicy((0,), 1)}
    assert refusal("a,numa-node=2").endswith("there are: 0, 1")


def test_groups_without_a_policy_have_that_of_their_kind() -> None:
    policies = {name: HostPolicy((0,)) for name in ("cpu", "gpu_1", "own")}
    assert policy_of(policies, "", "KIND_CPU", 0) is policies["cpu"]
    assert policy_of(policies, "", "KIND_GPU", 1) is policies["gpu_1"]
    assert policy_of(policies, "", "KIND_GPU", 0) is None
    assert policy_of(policies, "", "KIND_MODEL", 0) is None
    assert policy_of(policies, "own", "KIND_CPU", 0) is policies["own"]
    assert policy_of(policies, "other", "KIND_CPU", 0) is None


PARTS = st.sampled_from(
    ["a", ",", "=", "cpu-cores", "numa-node", "-", "0", "1", f"{CPU}-{CPU}", "٣", "²", " ", "9" * 5000]
)


@given(st.lists(st.lists(PARTS).map("".join), max_size=3))
def test_any_policies_are_read_or_refused(entries: list[str]) -> None:
    try:
        policies = host_policies(entries)
    except click.UsageError:
        return
    assert policies.keys() == {entry.partition(",")[0] for entry in entries}
    assert all(policy.cpus for policy in policies.values())
