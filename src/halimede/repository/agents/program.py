"""The process in which an agent takes one action.

A JSON object on standard input says which, and one on standard output what came of it. It runs with the standard
library and what the agent imports; what the agent prints goes to standard error. It ends with the server, which holds
the other end of the pipe whose number is the argument.
"""

import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

CLASS = "TritonRepositoryAgent"
LOAD = "LOAD"
ACTIONS = (LOAD, "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE")


class RefusalError(Exception):
    """An agent refuses a model; the text is the reason."""


class Model:
    """A model, as an agent sees it.

    Attributes:
        name: its name.
        config: its configuration as it is written, as JSON: nothing is filled in.
        parameters: the agent's, from the configuration.
        location: the directory from which the model is loaded: one like ``<repository>/<model>``.
        state: what the agent remembers from one action to the next: whatever JSON can hold.
    """

    def __init__(self, call: dict[str, Any]) -> None:
        self.name: str = call["model"]
        self.config: dict[str, Any] = call["config"]
        self.parameters: dict[str, str] = call["parameters"]
        self.location = Path(call["location"])
        self.state: dict[str, Any] = call["state"]
        self._action: str = call["action"]
        self._scratch: str = call["scratch"]

    def acquire_location(self) -> Path:
        """A new, empty directory that nobody else can read; the server deletes it after the model is unloaded.

        Raises:
            RuntimeError: the action is not LOAD.
        """
        self._require_load()
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def update_location(self, directory: str | os.PathLike[str]) -> None:
        """Let the model be loaded from another directory, and the agents after this one see that.

        Raises:
            RuntimeError: the action is not LOAD.
        """
        self._require_load()
        self.location = Path(directory)

    def copy(self) -> Path:
        """A copy of the model's files, which the agent may change, and from which the model is loaded then.

        Raises:
            RuntimeError: the action is not LOAD.
        """
        copy = self.acquire_location()
        shutil.copytree(self.location, copy, dirs_exist_ok=True)
        copy.chmod(0o700)  # the original's mode is copied too
        self.update_location(copy)
        return copy

    def refuse(self, reason: str) -> NoReturn:
        """Refuse to have the model loaded.

        Raises:
            RefusalError: always.
        """
        raise RefusalError(reason)

    def _require_load(self) -> None:
        if self._action != LOAD:
            msg = f"location can only be updated during {LOAD}, current action type is {self._action}"
            raise RuntimeError(msg)


def act(call: dict[str, Any]) -> dict[str, Any]:
    """What comes of the action: the model's location, the agent's state and actions, or what went wrong."""
    model = Model(call)
    actions: list[str] = []
    try:
        agent_class = _agent_class(call["file"])
        actions = [action for action in ACTIONS if hasattr(agent_class, action.lower())]
        if not actions:
            model.refuse(f"{CLASS} has none of the methods {', '.join(map(str.lower, ACTIONS))}")
        if call["action"] in actions:
            method: Callable[[Model], object] = getattr(agent_class(), call["action"].lower())
            method(model)
        json.dumps(model.state)  # which may be anything
    except RefusalError as refusal:
        return {"refusal": str(refusal), "actions": actions}
    except BaseException as error:  # SystemExit is no way out of it
        traceback.print_exc()
        return {"failure": f"{type(error).__name__}: {error}", "actions": actions}
    return {"location": str(model.location.absolute()), "state": model.state, "actions": actions}


def _agent_class(file: str) -> Any:
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("agent", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["agent"] = module
    spec.loader.exec_module(module)
    agent_class = getattr(module, CLASS, None)
    if agent_class is None:
        msg = f"there is no class {CLASS} in {file}"
        raise RefusalError(msg)
    return agent_class


def _end_with_server(pipe: int) -> None:
    os.read(pipe, 1)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Take the action."""
    threading.Thread(target=_end_with_server, args=(int(sys.argv[1]),), daemon=True).start()
    call = json.load(sys.stdin)
    answers = os.dup(1)
    os.dup2(2, 1)
    answer = act(call)
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(answers, "w") as file:
        json.dump(answer, file)
        file.write("\n")
    os._exit(0)  # threads of the agent's would keep it


if __name__ == "__main__":
    main()
