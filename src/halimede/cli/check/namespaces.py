"""Models of equal names in several repositories, as `halimede check` holds them against each other."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from halimede.cli.check.findings import Examination
from halimede.repository.layout import identifier
from halimede.repository.namespaced_steps import bind_steps


@contextmanager
def namespaces(
    examinations: Sequence[Examination], repositories: Sequence[Path]
) -> Iterator[Mapping[str, Examination]]:
    """The models by their identifiers, which the configurations have as names meanwhile, and ensembles in their steps.

    What is found meanwhile is told under the names that the models have otherwise.
    """
    before = {id(each): len(each.findings) for each in examinations}
    for each in examinations:
        bind_steps(each.config, each.directory.parent, repositories)
        each.config.name = identifier(each.directory.parent, each.name)
    yield {each.config.name: each for each in examinations}
    prefixes = [identifier(repository, "") for repository in repositories]
    for each in examinations:
        each.config.name = each.name
        for step in each.config.ensemble_scheduling.step:
            step.model_name = step.model_name.removeprefix(f"{step.model_namespace}::")
        known = before[id(each)]
        for index, finding in enumerate(each.findings[known:], known):
            fix = finding.fix
            for prefix in prefixes:
                fix = fix.replace(prefix, "")
            each.findings[index] = replace(finding, model=each.name, fix=fix)
