"""The files of the repository for people who join: forms of issues, and the workflow that runs the checks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FORMS = sorted(Path(".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))
FIELDS = {"input", "textarea"}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_form_has_what_an_issue_form_needs(path: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    assert set(form) == {"name", "description", "labels", "body"}
    assert {field["type"] for field in form["body"]} <= FIELDS
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in form["body"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_workflow_runs_what_a_change_must_pass() -> None:
    workflow = yaml.safe_load(Path(".github/workflows/ci.yml").read_text())
    steps = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in steps
    assert "make release-check" in steps
    assert Path(".ci/run").stat().st_mode & 0o111
    assert "release-check:" in Path("Makefile").read_text()
    assert workflow["permissions"] == {"contents": "read"}
