import pytest

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.validate.ensembles import MAX_STEPS
from halimede.core.errors import InvalidArgumentError, NotFoundError
from halimede.engine.ensembles.plan import EnsemblePlan
from tests.engine.ensembles.fakes import ensemble, model, parse, ports, step

CHAIN = (step("a", "IN=X", "OUT=t"), step("b", "IN=t", "OUT=Y"))


def plan(config: ModelConfig, *models: ModelConfig) -> EnsemblePlan:
    known = {each.name: each for each in models}
    return EnsemblePlan.from_config(config, lambda name, version: known[name])


def refusal(config: ModelConfig, *models: ModelConfig) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        plan(config, *models)
    return caught.value.message


def test_an_ensemble_of_models_that_fit_has_a_plan() -> None:
    made = plan(ensemble(*CHAIN), model("a"), model("b"))
    assert [each.model_name for each in made.steps] == ["a", "b"]
    assert not made.signature.decoupled


def test_steps_may_be_listed_in_any_order() -> None:
    made = plan(ensemble(*reversed(CHAIN)), model("a"), model("b"))
    assert [each.model_name for each in made.steps] == ["a", "b"]


def test_an_ensemble_is_decoupled_if_a_step_is() -> None:
    assert plan(ensemble(*CHAIN), model("a", decoupled=True), model("b")).signature.decoupled
    assert plan(ensemble(*CHAIN), model("a"), model("b", decoupled=True)).signature.decoupled


def test_a_step_without_version_is_refused_with_what_to_write() -> None:
    text = refusal(ensemble(step("a", "IN=X", "OUT=Y", version=0)), model("a"))
    assert "ensemble 'e' depends on 'a' whose required version 0 is not loaded. " in text
    assert "-1 stands for the highest version" in text


def test_the_version_of_a_step_is_asked_for() -> None:
    asked: list[tuple[str, int]] = []

    def describe(name: str, version: int) -> ModelConfig:
        asked.append((name, version))
        return model(name)

    EnsemblePlan.from_config(ensemble(step("a", "IN=X", "OUT=t", 7), step("b", "IN=t", "OUT=Y")), describe)
    assert asked == [("a", 7), ("b", -1)]


def test_what_is_wrong_with_a_model_is_passed_on() -> None:
    def describe(name: str, version: int) -> ModelConfig:
        raise NotFoundError(f"no {name}")

    with pytest.raises(NotFoundError, match="no a"):
        EnsemblePlan.from_config(ensemble(*CHAIN), describe)


def test_a_larger_batch_than_a_step_takes_is_refused() -> None:
    text = refusal(ensemble(*CHAIN, batch=8), model("a", batch=8), model("b", batch=4))
    assert text == (
        "ensemble e allows maximum batch size 8, but it contains model b which only allows maximum batch size to be 4"
    )


def test_datatypes_that_differ_are_refused() -> None:
    text = refusal(ensemble(*CHAIN), model("a"), model("b", datatype="TYPE_INT32"))
    assert text == (
        "in ensemble e, ensemble tensor t: inconsistent data type: TYPE_FP32 is inferred from model a while "
        "TYPE_INT32 is inferred from model b"
    )


def test_shapes_that_differ_are_refused() -> None:
    text = refusal(
        ensemble(*CHAIN, batch=4, dims="16"),
        model("a", batch=4, dims="16"),
        model("b", batch=4, dims="8", out_dims="16"),
    )
    assert text == (
        "in ensemble e, ensemble tensor t: inconsistent shape: [-1,16] is inferred from model a while [-1,8] is "
        "inferred from model b"
    )


def test_the_ensembles_own_tensors_are_checked_too() -> None:
    text = refusal(ensemble(*CHAIN, dims="16"), model("a", dims="8", out_dims="16"), model("b", dims="16"))
    assert (
        "ensemble tensor X: inconsistent shape: [16] is inferred from model e while [8] is inferred" in text
    )
    text = refusal(ensemble(*CHAIN, dims="16"), model("a", dims="16"), model("b", dims="16", out_dims="8"))
    assert (
        "ensemble tensor Y: inconsistent shape: [16] is inferred from model e while [8] is inferred" in text
    )


def test_variable_sizes_fit_any_size() -> None:
    made = plan(ensemble(*CHAIN), model("a", dims="16"), model("b", dims="16", out_dims="4"))
    assert [each.model_name for each in made.steps] == ["a", "b"]


def test_a_model_with_the_batch_dimension_among_its_dims_fits_one_that_batches() -> None:
    made = plan(
        ensemble(*CHAIN, batch=4, dims="16"),
        model("a", batch=4, dims="16"),
        model("b", dims="-1, 16"),
    )
    assert [each.model_name for each in made.steps] == ["a", "b"]


def test_the_reshape_of_the_ensemble_is_what_steps_see() -> None:
    config = parse(
        'name: "e" platform: "ensemble" '
        'input { name: "X" data_type: TYPE_FP32 dims: 1 reshape { shape: [ 1, 1 ] } } '
        f"{ports('output', 'Y', '1, 1')} ensemble_scheduling {{ {step('a', 'IN=X', 'OUT=Y')} }}"
    )
    plan(config, model("a", dims="1, 1"))


def test_a_required_input_must_be_mapped() -> None:
    text = refusal(ensemble(*CHAIN), model("a", "IN MORE"), model("b"))
    assert text == "in ensemble e, input MORE in model a is not mapped to any ensemble tensors"
    plan(ensemble(*CHAIN), model("a", "IN MORE?"), model("b"))


def test_inputs_and_outputs_that_do_not_exist_are_refused() -> None:
    text = refusal(ensemble(step("a", "IM=X", "OUT=Y")), model("a"))
    assert "in ensemble e, ensemble tensor X is mapping to non-existing input IM in model a" in text
    assert ". Its inputs are [IN]" in text
    text = refusal(ensemble(step("a", "IN=X", "OUT1=Y")), model("a"))
    assert "in ensemble e, ensemble tensor Y is mapped from non-existing output OUT1 in model a" in text
    assert ". Its outputs are [OUT]" in text


def test_joining_the_responses_of_two_decoupled_models_is_refused() -> None:
    steps = (
        step("a", "IN=X", "OUT=t"),
        step("b", "IN=X", "OUT=u"),
        step("join", "IN0=t IN1=u", "OUT=Y"),
    )
    models = (model("a", decoupled=True), model("b", decoupled=True), model("join", "IN0 IN1"))
    assert refusal(ensemble(*steps), *models) == (
        "in ensemble e, step of model 'join' receives inputs originated from different decoupled models"
    )


def test_outputs_of_two_decoupled_models_are_refused() -> None:
    config = ensemble(step("a", "IN=X", "OUT=Y"), step("b", "IN=X", "OUT=Z"), outputs="Y Z")
    text = refusal(config, model("a", decoupled=True), model("b", decoupled=True))
    assert text.endswith("step of model 'e' receives inputs originated from different decoupled models")


def test_an_input_that_a_step_writes_is_refused() -> None:
    config = ensemble(step("a", "IN=X", "OUT=X"), step("b", "IN=X", "OUT=Y"))
    assert "ensemble tensor X is an input of the ensemble" in refusal(config, model("a"), model("b"))


def test_steps_in_a_circle_are_refused() -> None:
    config = ModelConfig()
    config.CopyFrom(ensemble(*CHAIN))
    config.ensemble_scheduling.step[0].input_map["IN"] = "Y"
    text = refusal(config, model("a"), model("b"))
    assert text == (
        "output 'Y' for ensemble 'e' is not written: at least one of its depending tensors, 't', is not connected"
    )


def test_routes_are_made_once_and_not_kept_without_end() -> None:
    names = [f"Y{index}" for index in range(8)]
    steps = [step("a", "IN=X", f"OUT={name}") for name in names]
    made = plan(ensemble(*steps, outputs=" ".join(names)), model("a"))
    assert made.route(("Y1",)) is made.route(("Y1",))
    assert len(made.route(("Y1",)).steps) == 1
    assert len(made.route(()).steps) == 8
    for first in names:
        for second in names:
            for third in names:
                made.route((first, second, third))
    assert len(made._routes) <= 64  # noqa: SLF001 - what is left is seen only inside


def test_a_chain_of_many_steps_may_be_listed_backwards() -> None:
    names = ["X", *(f"t{number}" for number in range(1, MAX_STEPS)), "Y"]
    steps = [step(f"m{n}", f"IN={names[n]}", f"OUT={names[n + 1]}") for n in range(MAX_STEPS)]
    made = EnsemblePlan.from_config(ensemble(*reversed(steps)), lambda name, _: model(name))
    assert [each.model_name for each in made.steps] == [f"m{n}" for n in range(MAX_STEPS)]
