import hashlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.repository.agents.call import (
    Action,
    AgentAnswer,
    AgentCall,
    AgentError,
    call_agent,
    hide_parameters,
)
from halimede.repository.agents.declared import agent_file
from tests.repository.agents.agents import until_gone, write_agent

LIMIT_S = 60.0

Call = Callable[..., AgentAnswer]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "models" / "m"
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.bin").write_bytes(b"weights")
    return directory


@pytest.fixture
def call(tmp_path: Path, model: Path) -> Call:
    """Calls an agent with these methods, or the one of that name."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def call(methods: str = "", limit_s: float = LIMIT_S, head: str = "", **changes: Any) -> AgentAnswer:
        if methods or head:
            changes["file"] = write_agent(tmp_path / "agents", "a", methods, head)
        given = {
            "agent": "a", "file": tmp_path, "action": Action.LOAD, "model": "m", "location": model,
            "config": {"name": "m"}, "parameters": {}, "state": {}, "scratch": scratch, **changes,
        }  # fmt: skip
        return call_agent(AgentCall(**given), limit_s)

    return call


def reason(call: Call, *arguments: Any, **changes: Any) -> str:
    with pytest.raises(AgentError) as caught:
        call(*arguments, **changes)
    return caught.value.message


# What goes wrong


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ('def load(self, model): model.refuse("not today")', "agent 'a' refused LOAD: not today"),
        ('def load(self, model): raise KeyError("k")', "agent 'a' failed at LOAD: KeyError: 'k'"),
        ("def __init__(self): 1 / 0\ndef load(self, model): pass", "failed at LOAD: ZeroDivisionError"),
        ("def load(self, model): raise SystemExit(3)", "agent 'a' failed at LOAD: SystemExit: 3"),
        ("def load(self): pass", "failed at LOAD: TypeError"),
        ("def run(self, model): pass", "refused LOAD: TritonRepositoryAgent has none of the methods load, "),
        (
            'def load(self, model): model.update_location("/nowhere/at/all")',
            "failed at LOAD: '/nowhere/at/all', from which it has the model loaded, is not a directory",
        ),
        (
            'def load(self, model): model.state["x"] = object()',
            "failed at LOAD: TypeError: Object of type object",
        ),
        (
            'def load(self, model): model.state["x"] = "y" * (2 << 20)',
            "its state takes more than 1048576 bytes",
        ),
        ("def load(self, model):\n    import os\n    os._exit(7)", "its process ended with status 7"),
        (
            "def load(self, model):\n    import os\n    os.kill(os.getpid(), 11)",
            "agent 'a' failed at LOAD: its process was killed: Segmentation fault",
        ),
        (
            "def load(self, model):\n    import os\n    os.closerange(0, 100)",
            "agent 'a' failed at LOAD: its process ended with status",
        ),
    ],
)
def test_an_agent_that_does_not_do_its_part_is_an_error_that_names_it(
    call: Call, methods: str, text: str
) -> None:
    assert text in reason(call, methods)


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("import no_such_module", "failed at LOAD: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def (", "failed at LOAD: SyntaxError"),
        ("raise ValueError('at import')", "failed at LOAD: ValueError: at import"),
    ],
)
def test_an_agent_that_cannot_be_imported_is_an_error(call: Call, head: str, text: str) -> None:
    assert text in reason(call, "def load(self, model): pass", head=head)


def test_a_file_without_the_class_is_an_error(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text("class Agent: pass")
    assert (
        reason(call, file=file)
        == f"agent 'a' refused LOAD: there is no class TritonRepositoryAgent in {file}"
    )


def test_an_agent_that_hangs_is_stopped_with_what_it_started(call: Call, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    methods = f"""
        def load(self, model):
            import pathlib, subprocess, time
            child = subprocess.Popen(["sleep", "1000"])
            pathlib.Path({str(note)!r}).write_text(str(child.pid))
            time.sleep(1000)
    """
    text = reason(call, methods, 5)
    assert text == "agent 'a' did not finish LOAD within 5 seconds and was stopped"
    until_gone(int(note.read_text()))


def test_what_gets_away_from_an_agent_does_not_keep_its_call(call: Call, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    methods = f"""
        def load(self, model):
            import pathlib, subprocess, sys
            child = subprocess.Popen(["yes"], stdout=sys.stderr, start_new_session=True)
            pathlib.Path({str(note)!r}).write_text(str(child.pid))
    """
    try:
        call(methods)
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)


def test_what_an_agent_leaves_running_ends_with_it(call: Call, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    methods = f"""
        def load(self, model):
            import pathlib, subprocess
            child = subprocess.Popen(["sleep", "1000"])
            pathlib.Path({str(note)!r}).write_text(str(child.pid))
    """
    call(methods)
    until_gone(int(note.read_text()))


def test_an_agent_that_prints_without_end_is_stopped_and_the_log_stays_short(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    methods = """
        def load(self, model):
            while True:
                print("again", flush=True)
    """
    with caplog.at_level(logging.INFO, "halimede"):
        assert "did not finish LOAD within 3 seconds" in reason(call, methods, 3)
    assert 0 < len(caplog.records) <= 1000


def test_an_endless_line_does_not_fill_the_memory(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "halimede"):
        call('def load(self, model): print("x" * 5_000_000)')
    assert len(caplog.records) < 1000
    assert all(0 < len(message) < 9000 for message in caplog.messages)


# Secrets


def test_values_of_parameters_are_neither_in_errors_nor_in_the_log(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    methods = """
        def load(self, model):
            print("my key is", model.parameters["key"])
            raise ValueError(f"cannot use {model.parameters['key']} for {model.parameters['file']}")
    """
    parameters = {"key": "hunter2-hunter2", "file": "1/model.bin", "few": "1"}
    with caplog.at_level(logging.DEBUG):
        text = reason(call, methods, parameters=parameters)
    assert text == "agent 'a' failed at LOAD: ValueError: cannot use <key> for <file>"
    assert "agent 'a' of 'm': my key is <key>" in caplog.messages
    assert "hunter2" not in caplog.text


def test_a_secret_in_a_long_line_is_hidden_before_the_line_is_cut(
    call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    methods = 'def load(self, model): print("x" * 8188 + model.parameters["key"])'
    with caplog.at_level(logging.INFO, "halimede"):
        call(methods, parameters={"key": "hunter2-hunter2"})
    assert "hun" not in caplog.text


@given(
    st.dictionaries(st.text("kn"), st.text("abcd'\\\"\n\u1234", min_size=4, max_size=12), max_size=3),
    st.lists(st.text("xyz", max_size=5)),
    st.data(),
)
def test_no_text_keeps_a_value(parameters: dict[str, str], texts: list[str], data: st.DataObject) -> None:
    values = st.sampled_from([*parameters.values(), ""])
    pieces = []
    for text in texts:
        value = data.draw(values)
        pieces += [text, data.draw(st.sampled_from([value, repr(value)]))]
    hidden = hide_parameters("|".join(pieces), parameters)
    for value in parameters.values():
        assert value not in hidden
        assert repr(value)[1:-1] not in hidden


def test_lines_of_a_secret_are_hidden_one_by_one(call: Call, caplog: pytest.LogCaptureFixture) -> None:
    methods = 'def load(self, model): print(model.parameters["pem"])'
    with caplog.at_level(logging.DEBUG):
        call(methods, parameters={"pem": "-----BEGIN\nMIIEvQIBADAN\n-----END"})
    assert "MIIEv" not in caplog.text


def test_secrets_are_no_argument_of_the_process(call: Call) -> None:
    methods = """
        def load(self, model):
            with open("/proc/self/cmdline") as line, open("/proc/self/environ") as environment:
                model.state["seen"] = model.parameters["key"] in line.read() + environment.read()
    """
    assert call(methods, parameters={"key": "hunter2-hunter2"}).state == {"seen": False}


# What an agent can do


def test_an_agent_sees_the_model(call: Call, model: Path) -> None:
    methods = """
        def load(self, model):
            model.state.update(name=model.name, parameters=model.parameters, config=model.config)
            model.state["file"] = (model.location / "1" / "model.bin").read_text()
    """
    answer = call(methods, parameters={"k": "v"})
    assert answer.state == {"name": "m", "parameters": {"k": "v"}, "config": {"name": "m"}, "file": "weights"}
    assert answer.location == model
    assert answer.actions == {Action.LOAD}


def test_an_agent_puts_a_copy_in_the_place_of_the_files(call: Call, model: Path) -> None:
    methods = """
        def load(self, model):
            (model.copy() / "1" / "model.bin").write_text("others")
    """
    answer = call(methods)
    assert (answer.location / "1" / "model.bin").read_text() == "others"
    assert (model / "1" / "model.bin").read_text() == "weights"
    assert answer.location.stat().st_mode & 0o077 == 0


def test_locations_change_only_while_loading(call: Call) -> None:
    methods = "def unload(self, model): model.acquire_location()"
    assert reason(call, methods, action=Action.UNLOAD).endswith(
        "RuntimeError: location can only be updated during LOAD, current action type is UNLOAD"
    )


def test_an_agent_remembers(call: Call) -> None:
    methods = """
        def load(self, model): model.state["lease"] = 7
        def unload_complete(self, model): model.refuse(f"the lease was {model.state['lease']}")
    """
    answer = call(methods)
    assert answer.actions == {Action.LOAD, Action.UNLOAD_COMPLETE}
    assert "the lease was 7" in reason(call, methods, action=Action.UNLOAD_COMPLETE, state=answer.state)


def test_an_agent_imports_what_lies_beside_it(call: Call, tmp_path: Path) -> None:
    methods = 'def load(self, model): model.state["value"] = beside.VALUE'
    (tmp_path / "agents" / "a").mkdir(parents=True)
    (tmp_path / "agents" / "a" / "beside.py").write_text("VALUE = 5")
    assert call(methods, head="import beside").state == {"value": 5}


# checksum


def checksum(call: Call, parameters: dict[str, str]) -> AgentAnswer:
    return call(file=agent_file("checksum", Path("/nowhere")), agent="checksum", parameters=parameters)


MD5 = hashlib.md5(b"weights").hexdigest()
SHA256 = hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "MD5:1/model.bin",
            "00" * 16,
            f"Mismatched MD5 hash for file 1/model.bin, expect: {'00' * 16}, got: {MD5}",
        ),
        ("CRC:1/model.bin", "00", "Unsupported checksum algorithm: CRC; it must be MD5 or SHA256"),
        ("MD5:1/absent", MD5, "cannot read file '1/absent' for its checksum: No such file or directory"),
        ("MD5:1", MD5, "cannot read file '1' for its checksum: Is a directory"),
        (
            "MD5:../m/1/model.bin",
            MD5,
            "file '../m/1/model.bin' of the agent checksum must lie in the model's directory",
        ),
        (
            "MD5:/etc/passwd",
            MD5,
            "file '/etc/passwd' of the agent checksum must lie in the model's directory",
        ),
        ("MD5", MD5, "parameter 'MD5' of the agent checksum is not of the form MD5:<path> or SHA256:<path>"),
        (
            "MD5:",
            MD5,
            "parameter 'MD5:' of the agent checksum is not of the form MD5:<path> or SHA256:<path>",
        ),
    ],
)
def test_a_wrong_checksum_refuses_the_model_in_tritons_words(
    call: Call, key: str, value: str, text: str
) -> None:
    assert reason(checksum, call, {key: value}) == text


def test_right_checksums_let_the_model_be_loaded(call: Call, model: Path) -> None:
    answer = checksum(call, {"md5:1/model.bin": MD5.upper(), "SHA256:1/model.bin": SHA256})
    assert answer.location == model


# Where agents are


def test_an_agent_of_the_directory_comes_before_one_of_the_server(tmp_path: Path) -> None:
    file = write_agent(tmp_path, "checksum", "def load(self, model): pass")
    assert agent_file("checksum", tmp_path) == file


@pytest.mark.parametrize("name", ["nosuch", "", "..", "../x", "a/b", "a\0b"])
def test_an_agent_that_is_not_there_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        agent_file(name, tmp_path)
    assert caught.value.message.startswith(f"unable to find 'agent.py' for repo agent '{name}', searched: ")


def test_a_library_for_triton_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "libtritonrepoagent_x.so").touch()
    with pytest.raises(InvalidArgumentError, match=r"agents are Python classes, in .*/x/agent.py"):
        agent_file("x", tmp_path)


def test_calls_leave_no_open_files(call: Call) -> None:
    call("def load(self, model): pass")
    before = len(list(Path("/proc/self/fd").iterdir()))
    call("def load(self, model): pass")
    reason(call, "def load(self, model): 1 / 0")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
