"""On which node an instance goes, and what is said when there is none."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.ray.launch import Shape
from halimede.hosting.substrates.ray.placement import Node, choose_node, shortage
from halimede.hosting.substrates.ray.settings import RaySettings
from halimede.hosting.substrates.ray.substrate import RaySubstrate

_GIB = 1 << 30


def node(name: str, cpus: float, free: float, gpus: float = 0, free_gpus: float = 0, here: int = 0) -> Node:
    """A node, on which there are so many instances of the variant."""
    return Node(
        name,
        f"10.0.0.{len(name)}",
        {"CPU": cpus, "GPU": gpus, "memory": 8 * _GIB},
        {"CPU": free, "GPU": free_gpus, "memory": 4 * _GIB},
        {"v": here},
    )


def chosen(nodes: list[Node], shape: Shape, *, spread: bool = True) -> str | None:
    found = choose_node(nodes, shape, "v", spread=spread)
    return None if found is None else found.id


def test_instances_of_a_variant_are_put_apart() -> None:
    nodes = [node("a", 4, 4, here=1), node("b", 4, 1), node("c", 4, 3)]
    assert chosen(nodes, Shape(1)) == "c"
    assert chosen([node("a", 4, 4, here=1), node("b", 4, 1, here=2)], Shape(1)) == "a"


def test_packing_fills_the_node_that_is_nearly_full() -> None:
    nodes = [node("a", 4, 4), node("b", 4, 1, here=3), node("c", 4, 3)]
    assert chosen(nodes, Shape(1), spread=False) == "b"
    assert chosen(nodes, Shape(2), spread=False) == "c"


@pytest.mark.parametrize("spread", [True, False])
def test_gpus_are_not_scattered_and_left_to_those_who_use_them(spread: bool) -> None:
    nodes = [node("whole", 8, 8, 4, 4), node("part", 8, 8, 4, 1), node("plain", 8, 8)]
    assert chosen(nodes, Shape(1, gpus=1), spread=spread) == "part"
    assert chosen(nodes, Shape(1, gpus=2), spread=spread) == "whole"
    assert chosen(nodes, Shape(1), spread=spread) == "plain"
    assert chosen(nodes[:2], Shape(1), spread=spread) is not None


def test_where_there_is_no_room_is_nowhere() -> None:
    nodes = [node("a", 2, 0.5), node("b", 1, 1)]
    assert chosen(nodes, Shape(2)) is None
    assert chosen([], Shape(1)) is None
    assert chosen(nodes, Shape(1, custom={"accelerator": 1})) is None


def test_a_shortage_names_what_is_lacking() -> None:
    nodes = [node("a", 2, 0.5), node("bb", 4, 1)]
    assert "no node of the Ray cluster is alive; the instance asks for 1 CPU" in shortage([], Shape(1))
    text = shortage(nodes, Shape(8, 2 * _GIB))
    assert (
        "none of the 2 nodes of the Ray cluster has 8 CPU and 2 GiB of memory; the largest has 4 CPU" in text
    )
    text = shortage(nodes, Shape(2))
    assert "no room for 2 CPU: 2 of its 2 nodes could hold it, and the best of them has 1 CPU free" in text


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4), st.integers(0, 3)), max_size=6),
    st.integers(0, 8),
    st.integers(0, 4),
    st.booleans(),
)
def test_a_chosen_node_has_room_and_spreading_finds_the_fewest(
    nodes: list[tuple[int, int, int]], cpus: int, gpus: int, spread: bool
) -> None:
    every = [node(f"n{each}", 8, free, 4, spare, here) for each, (free, spare, here) in enumerate(nodes)]
    found = choose_node(every, Shape(cpus, gpus=gpus), "v", spread=spread)
    able = [each for each in every if each.free["CPU"] >= cpus and each.free["GPU"] >= gpus]
    assert (found is None) == (not able)
    if found is not None:
        assert found in able
        if spread:
            assert found.variants["v"] == min(each.variants["v"] for each in able)


def test_nodes_that_cannot_reach_the_host_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    substrate = RaySubstrate(tmp_path, Images(), 8.0, RaySettings("10.0.0.9:6379"), only_here=True)
    substrate._engine.address = "10.0.0.1"  # noqa: SLF001 - as of a cluster
    with caplog.at_level(logging.WARNING, "halimede"):
        substrate._know([node("a", 4, 4)])  # noqa: SLF001 - as its cluster calls it
        assert not caplog.messages
        substrate._know([node("a", 4, 4), node("bb", 2, 2)])  # noqa: SLF001 - as its cluster calls it
        substrate._know([node("a", 4, 4), node("bb", 2, 2)])  # noqa: SLF001 - as its cluster calls it
    [message] = caplog.messages
    assert "the nodes at 10.0.0.2 cannot fetch models from this host" in message
    assert "--address=10.0.0.1" in message
    assert substrate.largest().cpus == 4
