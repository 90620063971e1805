"""The end of a model: after which call it comes, and what it may still do with others in `finalize`."""

import http.client
import os
from contextlib import closing
from pathlib import Path

from tests.python_models.support import Models, answering
from tests.support.waiting import wait_until

IN_SERVER_TOO = True


def test_a_model_asks_after_another_and_unloads_it_as_it_is_unloaded_itself(models: Models) -> None:
    helper = models.load(answering("x"))
    finalize = f"""
    def finalize(self):
        print("finalize found", pb_utils.is_model_ready("{helper}"), pb_utils.is_model_ready("nosuch"))
        pb_utils.unload_model("{helper}")
        print("finalize ended")
"""
    name = models.load(answering("x") + finalize)
    models.http.unload_model(name)
    models.server.wait_for("finalize found True False")
    models.server.wait_for("finalize ended")
    wait_until(lambda: not models.http.is_model_ready(helper), f"{helper} to be unloaded")


def test_an_unload_that_comes_while_the_model_loads_waits_for_the_load_and_then_unloads(
    models: Models, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    hooks = f"""
    def initialize(self, args):
        print(args["model_name"], "begins")
        open({str(held)!r}).read()
        print(args["model_name"], "has begun")
        self.name = args["model_name"]

    def finalize(self):
        print(self.name, "ends")
"""
    name = models.write(answering("x") + hooks)
    with (
        closing(http.client.HTTPConnection(models.server.http)) as load,
        closing(http.client.HTTPConnection(models.server.http)) as unload,
    ):
        load.request("POST", f"/v2/repository/models/{name}/load")
        models.server.wait_for(f"{name} begins")
        unload.request("POST", f"/v2/repository/models/{name}/unload")
        held.write_text("go on")
        assert [each.getresponse().status for each in (load, unload)] == [200, 200]
    models.server.wait_for(f"successfully unloaded '{name}' version 1")
    log = models.server.log
    order = [f"{name} begins", f"{name} has begun", f"successfully loaded '{name}'", f"{name} ends"]
    assert sorted(order, key=log.index) == order
    assert not models.http.is_model_ready(name)
