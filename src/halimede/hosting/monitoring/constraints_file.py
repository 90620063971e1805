"""`constraints.json` and `constraint_violations.json` as SageMaker's Model Monitor has them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import orjson

from halimede.hosting.monitoring.features import Feature, InferredType
from halimede.hosting.monitoring.statistics_file import BaselineError, reason

MAX_DOMAIN = 100
"""A column of texts has a domain if it has no more different values than this."""


class Check(StrEnum):
    """What is violated."""

    DATA_TYPE = "data_type_check"
    COMPLETENESS = "completeness_check"
    DRIFT = "baseline_drift_check"
    MISSING_COLUMN = "missing_column_check"
    EXTRA_COLUMN = "extra_column_check"
    CATEGORIES = "categorical_values_check"


@dataclass(frozen=True, slots=True)
class Violation:
    """A constraint that is not kept.

    Attributes:
        feature: the column.
        check: which constraint.
        description: a sentence or several that say what was found.
    """

    feature: str
    check: Check
    description: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a column must be.

    Attributes:
        name: the column's.
        type: what it holds.
        completeness: which share of its values has to be there.
        is_non_negative: whether none of its numbers may be negative.
        domain: the texts that it may hold; None for any.
    """

    name: str
    type: InferredType
    completeness: float = 0.0
    is_non_negative: bool = False
    domain: Collection[str] | None = None

    @classmethod
    def suggested(cls, feature: Feature) -> Self:
        """The constraint that a column keeps."""
        numbers = feature.numbers
        is_text = feature.type is InferredType.STRING
        domain = None
        if is_text and feature.are_all_counted and feature.distinct <= MAX_DOMAIN:
            domain = sorted(feature.categories)
        return cls(
            feature.name,
            feature.type,
            feature.completeness,
            not is_text and numbers is not None and numbers.least >= 0,
            domain,
        )


@dataclass(frozen=True, slots=True)
class MonitoringConfig:
    """What is checked (`monitoring_config`).

    Attributes:
        evaluates: whether anything is.
        emits_metrics: whether there are metrics.
        type_share: which share of a column's values has to be of its type.
        domain_share: which share of them has to be of its domain.
        compares: whether distributions are compared.
        numeric_distance: further apart distributions of numbers may not be.
        is_robust: whether a distance that comes from few values is made smaller.
        categorical_distance: further apart distributions of texts may not be.
        uses_chi_squared: whether distributions of texts are compared by the χ² test too.
        psi: a greater population stability index is drift; not one of SageMaker's members.
    """

    evaluates: bool = True
    emits_metrics: bool = True
    type_share: float = 1.0
    domain_share: float = 1.0
    compares: bool = True
    numeric_distance: float = 0.1
    is_robust: bool = True
    categorical_distance: float = 0.1
    uses_chi_squared: bool = True
    psi: float = 0.2

    def document(self) -> dict[str, Any]:
        """As the file has it."""
        return {
            "evaluate_constraints": _switch(self.evaluates),
            "emit_metrics": _switch(self.emits_metrics),
            "datatype_check_threshold": self.type_share,
            "domain_content_threshold": self.domain_share,
            "distribution_constraints": {
                "perform_comparison": _switch(self.compares),
                "comparison_threshold": self.numeric_distance,
                "comparison_method": "Robust" if self.is_robust else "Simple",
                "categorical_comparison_threshold": self.categorical_distance,
                "categorical_drift_method": "ChiSquared" if self.uses_chi_squared else "LInfinity",
                "psi_threshold": self.psi,
            },
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """What a file says; SageMaker's defaults for what it leaves out.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: it is no such document.
        """
        distributions = document.get("distribution_constraints") or {}
        method = distributions.get("comparison_method", "Robust")
        if method not in {"Robust", "Simple"}:
            msg = f"comparison_method is '{method}'; it is Robust or Simple"
            raise ValueError(msg)
        return cls(
            document.get("evaluate_constraints", "Enabled") == "Enabled",
            document.get("emit_metrics", "Enabled") == "Enabled",
            float(document.get("datatype_check_threshold", 1.0)),
            float(document.get("domain_content_threshold", 1.0)),
            distributions.get("perform_comparison", "Enabled") == "Enabled",
            float(distributions.get("comparison_threshold", 0.1)),
            method == "Robust",
            float(distributions.get("categorical_comparison_threshold", 0.1)),
            distributions.get("categorical_drift_method", "LInfinity") == "ChiSquared",
            float(distributions.get("psi_threshold", 0.2)),
        )


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of a file.

    Attributes:
        features: those of columns, by name.
        config: what is checked.
    """

    features: Mapping[str, Constraint]
    config: MonitoringConfig = field(default_factory=MonitoringConfig)

    @classmethod
    def suggested(cls, features: Iterable[Feature]) -> Self:
        """The constraints that columns keep."""
        return cls({feature.name: Constraint.suggested(feature) for feature in features})


def write_constraints(constraints: Constraints) -> bytes:
    """The file."""
    document = {
        "version": 0.0,
        "features": [_entry(constraint) for constraint in constraints.features.values()],
        "monitoring_config": constraints.config.document(),
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _entry(constraint: Constraint) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": constraint.name,
        "inferred_type": str(constraint.type),
        "completeness": constraint.completeness,
    }
    if constraint.type in {InferredType.INTEGRAL, InferredType.FRACTIONAL}:
        entry["num_constraints"] = {"is_non_negative": constraint.is_non_negative}
    elif constraint.domain is not None:
        entry["string_constraints"] = {"domains": list(constraint.domain)}
    return entry


def read_constraints(content: bytes, name: str) -> Constraints:
    """What a file says.

    Args:
        content: the file.
        name: what error texts call it.

    Raises:
        BaselineError: it is no such file.
    """
    try:
        document = orjson.loads(content)
        features = [_constraint(entry) for entry in document["features"]]
        config = MonitoringConfig.from_document(document.get("monitoring_config") or {})
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise BaselineError(f"{name} is no constraints.json of Model Monitor: {reason(error)}") from None
    return Constraints({feature.name: feature for feature in features}, config)


def _constraint(entry: Mapping[str, Any]) -> Constraint:
    domains = (entry.get("string_constraints") or {}).get("domains")
    return Constraint(
        str(entry["name"]),
        InferredType(entry["inferred_type"]),
        float(entry.get("completeness", 0.0)),
        bool((entry.get("num_constraints") or {}).get("is_non_negative", False)),
        None if domains is None else tuple(map(str, domains)),
    )


def write_violations(violations: Iterable[Violation]) -> bytes:
    """`constraint_violations.json`."""
    entries = [
        {
            "feature_name": violation.feature,
            "constraint_check_type": str(violation.check),
            "description": violation.description,
        }
        for violation in violations
    ]
    return orjson.dumps({"violations": entries}, option=orjson.OPT_INDENT_2)


def _switch(is_on: bool) -> str:
    return "Enabled" if is_on else "Disabled"
