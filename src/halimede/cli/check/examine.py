"""Looking at a model on disk as a server would load it, but to the end: every problem, each with its place."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from halimede.backends.base import BackendOptions, ModelSource
from halimede.backends.initial_states import DIRECTORY as STATE_DIRECTORY
from halimede.backends.initial_states import initial_state
from halimede.backends.isolation import ISOLATION, runs_in_process
from halimede.backends.placement import Placement, placement
from halimede.backends.registry import PYTHON, backend_class, backend_name
from halimede.cli.check.agents import agent_problems, may_be_replaced
from halimede.cli.check.completion import (
    autofill_problems,
    is_nowhere,
    misnamed_file,
    no_version,
    unknown_backend,
)
from halimede.cli.check.contradictions import contradictions
from halimede.cli.check.findings import Examination, Finding
from halimede.cli.check.mismatches import Part, mismatches
from halimede.cli.check.namespaces import namespaces
from halimede.cli.check.openai_parameters import openai_problems
from halimede.cli.check.python_imports import PythonImports
from halimede.cli.check.python_sources import import_fix, source_problems, told_failure, unlisted_sides
from halimede.cli.check.resources import pool_problems, resource_problems, scope_problems
from halimede.cli.check.warmup_inputs import warmup_input_problems
from halimede.config.ensembles import is_ensemble
from halimede.config.locate import Locations, locate
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import advice
from halimede.config.normalise import normalise
from halimede.config.parse import ConfigTextError, parse_text, read_text
from halimede.config.validate import Problem, find_problems, find_warnings
from halimede.config.validate.instances import instance_problems
from halimede.config.validate.tensors import tensor_problems
from halimede.core.datatypes import BY_NUMBER
from halimede.core.errors import HalimedeError, NotFoundError
from halimede.core.gpus import visible_gpus
from halimede.core.steps import step
from halimede.engine.lifecycle.loading import refuse_runtime
from halimede.engine.settings import ResourceLimit
from halimede.repository.labels import read_labels
from halimede.repository.layout import find_models, inside
from halimede.repository.resolve import config_path
from halimede.repository.versions import find_versions, select_versions

_LACKING: Final = re.compile(r"(input|output)\[\d+\]\.(data_type|dims)")

IMPORT_TIMEOUT_S = 60.0
"""How long the import of a Python model may take."""

AGENT_DIRECTORY = Path("/opt/tritonserver/repoagents")
"""Where repository agents are, unless a flag says otherwise."""

UNREAD_BY_BACKENDS = (
    "name",
    "dynamic_batching",
    "model_warmup",
    "model_metrics",
    "response_cache",
    "instance_group",
    "model_repository_agents",
)
"""Settings that can be wrong without keeping a backend from its own look at the configuration."""


def examine(
    repositories: Sequence[Path],
    config_name: str = "",
    import_timeout_s: float = IMPORT_TIMEOUT_S,
    limits: Sequence[ResourceLimit] = (),
    agents: Path = AGENT_DIRECTORY,
    *,
    namespaced: bool = False,
) -> list[Examination]:
    """What there is to say about each model of the repositories, by name.

    Args:
        repositories: directories of models.
        config_name: use ``configs/<name>.pbtxt`` where it exists.
        import_timeout_s: how long the import of a Python model may take; 0 to import none.
        limits: how much there is of the rate limiter's resources; none if that is not known.
        agents: where repository agents are.
        namespaced: repositories may hold models of equal names.

    Raises:
        OSError: a repository cannot be read.
    """
    with closing(PythonImports(import_timeout_s)) as imports:
        examinations = _examine_each(repositories, config_name, imports, agents, namespaced)
    if namespaced:
        with namespaces(examinations, repositories) as by_name:
            _examine_together(by_name, config_name, limits)
    else:
        _examine_together({each.name: each for each in examinations}, config_name, limits)
    return sorted(examinations, key=lambda examination: examination.name)


def _examine_together(
    examinations: Mapping[str, Examination], config_name: str, limits: Sequence[ResourceLimit]
) -> None:
    """Hold models against each other, by the names of their configurations."""
    _examine_ensembles(examinations, config_name)
    _examine_resources(examinations, config_name, limits)


def _examine_each(
    repositories: Sequence[Path], config_name: str, imports: PythonImports, agents: Path, namespaced: bool
) -> list[Examination]:
    examinations = []
    found = find_models(repositories)
    total = sum(map(len, found.values()))
    with step("Examining", total) as examining:
        for name, directories in found.items():
            examining.text = f"Examining {name}"
            for directory in directories:
                examination = _examine_model(name, directory, config_name, imports, agents)
                if len(directories) > 1 and not namespaced:
                    places = ", ".join(str(each.parent) for each in directories)
                    message = (
                        f"model '{name}' is in several repositories ({places}), so none of them is served"
                    )
                    fix = "remove or rename all but one of them"
                    examination.findings.insert(0, Finding(name, directory, 0, "", message, fix))
                examinations.append(examination)
                examining.advance(1)
    return examinations


def _examine_ensembles(examinations: Mapping[str, Examination], config_name: str) -> None:
    """Hold ensembles against their models, inner ensembles before outer ones."""
    parts: dict[str, Part] = {
        name: Part(each.config, tuple(each.versions), not (each.findings or may_be_replaced(each.config)))
        for name, each in examinations.items()
    }
    waiting = {name for name, each in examinations.items() if is_ensemble(each.config)}
    while waiting:
        # all of them at last: those that need each other in a circle
        turn = {name for name in waiting if waiting.isdisjoint(parts[name].ahead)} or waiting
        for name in sorted(turn):
            each = examinations[name]
            path = config_path(each.directory, config_name)
            each.findings += [
                _place(problem, path, each.locations) for problem in mismatches(each.config, parts)
            ]
            parts[name] = Part(each.config, tuple(each.versions), not each.findings)
        waiting -= turn


def _examine_resources(
    examinations: Mapping[str, Examination], config_name: str, limits: Sequence[ResourceLimit]
) -> None:
    """Hold the resources that models declare against each other, and against what there is."""
    configs = {name: each.config for name, each in examinations.items()}
    for problem in (*scope_problems(configs), *pool_problems(configs, limits)):
        examination = examinations[problem.model]
        path = config_path(examination.directory, config_name)
        examination.findings.append(_place(problem, path, examination.locations))


def _examine_model(
    name: str, directory: Path, config_name: str, imports: PythonImports, agents: Path
) -> Examination:
    result = Examination(name, directory)
    path = config_path(directory, config_name)
    locations = Locations()
    if path.exists():
        try:
            text = read_text(path)
            result.config = parse_text(text, str(path))
            result.named_file = result.config.default_model_filename
            result.locations = locations = locate(text)
        except HalimedeError as error:
            line, fix = (error.line, error.fix) if isinstance(error, ConfigTextError) else (0, "")
            result.findings.append(Finding(name, path, line, "", error.message, fix))
            return result
    config = result.config
    if may_be_replaced(config):
        return _examine_replaced(result, path, agents)
    problems = [*_repeated_keys(config, name, locations), *autofill_problems(config, name, directory)]
    placed = placement(config, visible_gpus())
    normalise(config, placed.gpus)
    named = is_nowhere(config, directory) or any(each.where in ("backend", "platform") for each in problems)
    found = find_problems(config, placed.gpus, placed.missing, complete=is_ensemble(config))
    incomplete = [] if is_ensemble(config) else _incomplete_tensors(config, found, imports)
    problems += [each for each in found if not (named and each.where == "backend")]
    problems += agent_problems(config, directory, agents)
    problems += resource_problems(config)
    if not named:
        problems += unknown_backend(config, directory)
    sound = all(each in incomplete or each.where.startswith(UNREAD_BY_BACKENDS) for each in problems)
    if sound:
        problems = [each for each in problems if each not in incomplete]
    problems += [
        *_labels(config, directory),
        *_warmup_files(config, directory),
        *_state_files(config, directory),
    ]
    result.findings += [_place(problem, path, locations) for problem in problems]
    result.versions = select_versions(config.version_policy, find_versions(directory))
    if not result.versions:
        problem = no_version(config, directory)
        place = path if problem.where else directory
        line = locations.line(problem.where)
        result.findings.append(Finding(name, place, line, problem.where, problem.message, problem.fix))
    if sound and not is_ensemble(config):
        seen = {_mistake(finding) for finding in result.findings}
        for version in result.versions:
            for finding in _open(result, version, path, locations, placed, imports):
                if _mistake(finding) not in seen:
                    seen.add(_mistake(finding))
                    result.findings.append(finding)
    if sound and result.config is config:
        result.findings += [_place(problem, path, locations) for problem in incomplete]
    if not result.findings and result.config.input and result.config.output:
        problems = [*warmup_input_problems(result.config, directory), *openai_problems(result.config)]
        result.findings += [_place(problem, path, locations) for problem in problems]
    if not result.findings:
        result.warnings += [_place(problem, path, locations) for problem in find_warnings(result.config)]
    return result


def _incomplete_tensors(
    config: ModelConfig, found: Iterable[Problem], imports: PythonImports
) -> list[Problem]:
    """Problems of inputs and outputs that are told only if the model cannot be opened.

    The code of a Python model may complete them. Other models know better what their tensors lack than a general fix.
    """
    if backend_name(config) == PYTHON:
        return [each for each in found if imports.wanted and each.where.startswith(("input[", "output["))]
    return [each for each in found if _is_lacking(each)]


def _is_lacking(problem: Problem) -> bool:
    """Whether an input or output has no datatype or no dims."""
    return bool(_LACKING.fullmatch(problem.where)) and " must specify " in problem.message


def _tensor(problem: Problem) -> str:
    """Where the tensor is that a problem is about."""
    return problem.where.rpartition(".")[0]


def _mistake(finding: Finding) -> tuple[str, str]:
    """What is the same for findings of several versions that stem from one mistake in the configuration."""
    in_config = finding.field and finding.fix
    return (finding.field, finding.fix) if in_config else ("", finding.message)


def _examine_replaced(result: Examination, path: Path, agents: Path) -> Examination:
    """What there is to say about a model whose files are not those that it is loaded from."""
    config = result.config
    problems = [
        *_repeated_keys(config, result.name, result.locations),
        *agent_problems(config, result.directory, agents),
    ]
    result.findings += [_place(problem, path, result.locations) for problem in problems]
    result.versions = select_versions(config.version_policy, find_versions(result.directory))
    if not problems:
        names = ", ".join(f"'{agent.name}'" for agent in config.model_repository_agents.agents)
        message = f"the model is not looked at any further: its files may be replaced by its agents {names}"
        warning = Problem(result.name, "model_repository_agents", message)
        result.warnings.append(_place(warning, path, result.locations))
    return result


def _place(problem: Problem, path: Path, locations: Locations) -> Finding:
    line = locations.line(problem.where)
    return Finding(problem.model, path, line, problem.where, problem.message, problem.fix)


def _repeated_keys(config: ModelConfig, name: str, locations: Locations) -> Iterator[Problem]:
    """Keys of maps that are given twice: the format allows it, and only the last one counts."""
    for path, line in locations.repeated_keys:
        owner, _, key = path.partition(".input_map[")
        if key and owner.startswith("ensemble_scheduling.step["):
            step = owner[len("ensemble_scheduling.step[") : -1]
            model = config.ensemble_scheduling.step[int(step)].model_name
            key = key.strip('"]')
            message = (
                f"input '{key}' in model '{model}' is mapped to multiple ensemble tensors for ensemble "
                f"'{name}' step {step}"
            )
        else:
            message = f"{path} is given more than once; only the entry on line {line} counts"
        yield Problem(name, path, message, "remove all but one of them")


def _labels(config: ModelConfig, directory: Path) -> Iterator[Problem]:
    for index, output in enumerate(config.output):
        if output.label_filename:
            try:
                read_labels(directory, output.label_filename)
            except HalimedeError as error:
                where = f"output[{index}].label_filename"
                yield Problem(config.name, where, error.message, _lacking(directory, output.label_filename))


def _warmup_files(config: ModelConfig, directory: Path) -> Iterator[Problem]:
    for index, sample in enumerate(config.model_warmup):
        for name in sorted(sample.inputs):
            given = sample.inputs[name]
            if given.WhichOneof("input_data_type") == "input_data_file" and sample.batch_size:
                where = f'model_warmup[{index}].inputs["{name}"].input_data_file'
                yield from _data_file(config, directory, f"warmup/{given.input_data_file}", where)


def _state_files(config: ModelConfig, directory: Path) -> Iterator[Problem]:
    for index, state in enumerate(config.sequence_batching.state):
        initial = state.initial_state[0] if state.initial_state else None
        if initial is None or initial.WhichOneof("state_data") != "data_file":
            continue
        where = f"sequence_batching.state[{index}].initial_state[0].data_file"
        problems = list(_data_file(config, directory, f"{STATE_DIRECTORY}/{initial.data_file}", where))
        yield from problems
        if problems or initial.data_type not in BY_NUMBER or min(initial.dims, default=0) < 0:
            continue
        try:
            initial_state(state, directory, config.name)
        except HalimedeError as error:
            yield Problem(config.name, where, error.message, "zero_data: true")


def _data_file(config: ModelConfig, directory: Path, file: str, where: str) -> Iterator[Problem]:
    try:
        found = inside(directory, file).is_file()
    except HalimedeError as error:
        yield Problem(config.name, where, error.message)
        return
    if not found:
        yield Problem(config.name, where, f"there is no file '{file}'", _lacking(directory, file))


def _lacking(directory: Path, file: str) -> str:
    return f"put the file at {directory / file}"


def _open(
    result: Examination,
    version: int,
    path: Path,
    locations: Locations,
    placed: Placement,
    imports: PythonImports,
) -> Iterator[Finding]:
    """What the model's backend says of a version; the configuration it completes becomes the result's."""
    config = ModelConfig()
    config.CopyFrom(result.config)
    if any(instance_problems(config, placed.gpus)):
        # told already; the framework has its look at the model on the CPU
        config.ClearField("instance_group")
        placed = Placement()
        normalise(config)
    source = ModelSource(result.name, version, result.directory, config)
    try:
        runs_in_process(source)
    except HalimedeError as error:
        problem = Problem(config.name, f'parameters["{ISOLATION}"].string_value', error.message)
        yield _place(problem, path, locations)
        return
    if backend_name(config) == PYTHON:
        try:
            refuse_runtime(source, None)
        except HalimedeError as error:
            yield _place(Problem(config.name, "runtime", error.message, "remove runtime"), path, locations)
        misnamed = misnamed_file(config, result.named_file, source.version_directory)
        problems = [_place(misnamed, path, locations)] if misnamed else list(_look_at_source(source))
        yield from problems
        if problems or not imports.wanted:
            return
        try:
            imports.complete_config(source, BackendOptions(gpus=placed.gpus))
        except HalimedeError as error:
            file = source.version_directory / (config.default_model_filename or "model.py")
            line, text = told_failure(error.message, file)
            yield Finding(result.name, file, line, "", text, import_fix(error.message))
            return
        yield from _complete_now(result, config, path, locations, placed)
        for problem in unlisted_sides(config):
            yield _place(problem, path, locations)
        return
    options = BackendOptions(settings={"default-max-batch-size": "4"}, gpus=placed.gpus)
    try:
        backend = backend_class(config)(source, options)
    except NotFoundError as error:
        misnamed = misnamed_file(config, result.named_file, source.version_directory)
        if misnamed is not None:
            yield _place(misnamed, path, locations)
            return
        found = advice(result.directory, backend_name(config))
        fix = "" if found is None else found.fix
        message = error.message.removesuffix(f": {fix}")
        if fix.startswith(("backend:", "default_model_filename:")):
            yield _place(Problem(result.name, fix.partition(":")[0], message, fix), path, locations)
        else:
            yield Finding(result.name, source.version_directory, 0, "", message, fix)
        return
    except HalimedeError as error:
        yield Finding(result.name, source.version_directory, 0, "", error.message, "")
        return
    lacking = {
        _tensor(each): each.message for each in reversed(list(tensor_problems(config))) if _is_lacking(each)
    }
    told = set()
    try:
        for problem in contradictions(backend):
            if problem.where in lacking:
                told.add(problem.where)
                problem = replace(problem, message=lacking[problem.where])
            if problem.where:
                yield _place(problem, path, locations)
            else:
                yield Finding(result.name, source.version_directory, 0, "", problem.message, problem.fix)
    finally:
        backend.close()
    yield from _complete_now(result, config, path, locations, placed, told)


def _complete_now(
    result: Examination,
    config: ModelConfig,
    path: Path,
    locations: Locations,
    placed: Placement,
    told: Collection[str] = (),
) -> Iterator[Finding]:
    """What is wrong with the completed configuration, which becomes the result's; `told` tensors lack something."""
    normalise(config, placed.gpus)
    for problem in find_problems(config, placed.gpus, placed.missing):
        if not (_is_lacking(problem) and _tensor(problem) in told):
            yield _place(problem, path, locations)
    result.config = config


def _look_at_source(source: ModelSource) -> Iterator[Finding]:
    """What is wrong with the file of a Python model, told without running it."""
    path = source.version_directory / (source.config.default_model_filename or "model.py")
    own_python = "EXECUTION_ENV_PATH" in source.config.parameters
    for line, problem in source_problems(source.name, path, own_python):
        yield Finding(source.name, path, line, "", problem.message, problem.fix)
