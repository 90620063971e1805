"""What is remembered of machines and the archives that they have."""

from halimede.hosting.routing.residency.nodes import NodeArchives


def test_machines_that_have_fetched_an_archive() -> None:
    nodes = NodeArchives(10)
    for node in ("a", "b"):
        nodes.joined(node)
        nodes.fetched(node, "m")
    nodes.fetched("a", "n")
    assert set(nodes.of("m")) == {"a", "b"}
    assert set(nodes.of("n")) == {"a"}
    assert set(nodes.of("other")) == set()


def test_a_machine_is_forgotten_with_its_last_instance() -> None:
    nodes = NodeArchives(10)
    nodes.joined("a")
    nodes.joined("a")
    nodes.fetched("a", "m")
    nodes.left("a")
    assert set(nodes.of("m")) == {"a"}
    nodes.left("a")
    assert set(nodes.of("m")) == set()
    nodes.fetched("a", "m")  # a load that ends late
    assert set(nodes.of("m")) == set()


def test_of_each_machine_so_many_archives_are_remembered() -> None:
    nodes = NodeArchives(2)
    nodes.joined("a")
    for model in ("m", "n", "m", "o"):
        nodes.fetched("a", model)
    assert [set(nodes.of(model)) for model in ("m", "n", "o")] == [{"a"}, set(), {"a"}]
