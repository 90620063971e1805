"""What nobody has of a node, by what Ray tells and what was placed there since."""

from halimede.hosting.substrates.ray.engine import _free
from halimede.hosting.substrates.ray.launch import Shape

TOTAL = {"CPU": 4.0, "GPU": 1.0}


def test_a_node_that_has_just_joined_is_free() -> None:
    assert _free(TOTAL, None, []) == TOTAL


def test_what_ray_does_not_name_is_taken() -> None:
    assert _free(TOTAL, {"CPU": 3.0}, []) == {"CPU": 3.0, "GPU": 0.0}


def test_what_was_placed_counts_before_ray_tells() -> None:
    assert _free(TOTAL, {"CPU": 4.0, "GPU": 1.0}, [Shape(1.5), Shape(1, gpus=1)]) == {"CPU": 1.5, "GPU": 0.0}
    assert _free(TOTAL, {"CPU": 0.5, "GPU": 0.0}, [Shape(1)]) == {"CPU": 0.5, "GPU": 0.0}
    assert _free(TOTAL, None, [Shape(1)]) == {"CPU": 3.0, "GPU": 1.0}
