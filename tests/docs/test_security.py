"""The page on security promises nothing that no test holds."""

import ast
import json
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.cli.echo import REQUEST, write_model
from tests.docs.pages import README, ROOT, anchors, links
from tests.support.certificates import Authority
from tests.support.commands import call_text_command
from tests.support.server import start_server

PAGE = ROOT / "docs" / "security.md"
ROWS = re.findall(
    r"^\| (.+?) \| (.*?) ?\|$",
    PAGE.read_text().partition("## Promises and their tests")[2].partition("\n## ")[0],
    re.M,
)[2:]
PROMISES = [(promise, tests) for promise, tests in ROWS if not promise.startswith("*")]


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The names of the functions in a file."""
    tree = ast.parse(path.read_text())
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )


@pytest.mark.parametrize(("promise", "tests"), PROMISES, ids=[promise[:60] for promise, _ in PROMISES])
def test_each_promise_names_tests_that_there_are(promise: str, tests: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert named, f"no test holds this: {promise}"
    assert len(named) == tests.count("`") // 2
    for path, name in named:
        assert (ROOT / path).is_file(), path
        assert name in functions_of(ROOT / path), f"{path} has no test {name}"


def test_the_table_of_promises_is_read_whole() -> None:
    assert len(PROMISES) > 25
    assert len({promise for promise, _ in PROMISES}) == len(PROMISES)


def test_the_page_is_found_from_the_readme_and_leads_to_every_kind_of_limit() -> None:
    assert "docs/security.md" in links(README)
    assert "docs/security.md#promises-and-their-tests" in links(README)
    sections = {link.partition("#")[2] for link in links(PAGE) if link.startswith("limits.md#")}
    assert sections == anchors(ROOT / "docs" / "limits.md") - {"limits-and-time-outs"}


def test_the_server_that_strangers_reach_answers_only_with_a_token_over_tls(tmp_path: Path) -> None:
    """The first command of that section, with the files of this test."""
    section = PAGE.read_text().partition("## A server that strangers reach")[2]
    command = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)[0]
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server")
    token = call_text_command("token", "client")
    (tmp_path / "tokens").write_text(token.stdout)
    files = {"server.crt": certificate, "server.key": key, "tokens": tmp_path / "tokens"}
    flags = [flag for flag in shlex.split(command.replace("\\\n", " "))[2:] if "model-repository" not in flag]
    for name, path in files.items():
        flags = [flag.replace(f"={name}", f"={path}") for flag in flags]
    (tmp_path / "models").mkdir()
    write_model(tmp_path / "models", size=-1)
    with start_server(tmp_path / "models", *flags, ready=False) as server:
        server.wait_for("| READY")

        def curl(path: str, *arguments: str, scheme: str = "https") -> tuple[str, str]:
            done = subprocess.run(
                ["curl", "-s", "--max-time", "20", "-w", "\n%{http_code}", "--cacert", authority.certificate,
                 *arguments, f"{scheme}://{server.http}{path}"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            body, _, status = done.stdout.rpartition("\n")
            return body, status

        bearer = ("-H", f"Authorization: Bearer {token.stderr.strip()}")
        infer = ("-d", REQUEST.decode())
        assert curl("/v2/models/echo/infer", *infer)[1] == "401"
        assert curl("/v2/models/echo/infer", *infer, *bearer)[1] == "200"
        assert curl("/v2/models/echo", *bearer, scheme="http")[1] == "000"
        assert curl("/v2/health/ready")[1] == "200"
        assert curl("/console", *bearer)[1] == "404"
        code = json.dumps({"parameters": {"config": "{}", "file:1/model.py": "eA=="}})
        assert curl("/v2/repository/models/x/load", *bearer, "-d", code)[1] in ("400", "403")
