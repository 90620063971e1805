from typing import Any

from halimede.frontends.profiling.other_processes import OtherProcess
from halimede.frontends.profiling.profile import Profile, read_samples, with_stages
from halimede.frontends.profiling.stages import HOP, PARSE, SOCKET, STAGES, Frame

LOOP, DECODE, SEND, IDLE = range(4)
FRAMES = [
    {"name": "Runner.run", "file": "/lib/asyncio/runners.py", "line": 118, "col": None},
    {"name": "RequestDecoder.decode", "file": "/x/halimede/frontends/http/codec/request.py", "line": 1},
    {"name": "Channel.send", "file": "/x/halimede/workers/channel.py", "line": 2},
    {"name": "_worker", "file": "/lib/concurrent/futures/thread.py", "line": 3},
]


def document() -> dict[str, Any]:
    """As py-spy writes it: the outermost function of a stack comes first."""
    samples = [[LOOP, DECODE], [LOOP, SEND], [LOOP], [LOOP, SEND], []]
    main = {"type": "sampled", "name": "main", "samples": samples, "weights": [0.01] * 5, "endValue": 0.05}
    idle = {"type": "sampled", "name": "idle", "samples": [[IDLE]], "weights": [0.01], "endValue": 0.01}
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": FRAMES},
        "profiles": [main, idle],
    }


def test_shares_of_stages_are_those_of_threads_at_work() -> None:
    samples = read_samples(document())
    loop, decode = (Frame(str(FRAMES[each]["file"]), str(FRAMES[each]["name"])) for each in (LOOP, DECODE))
    assert samples[decode, loop] == 1
    profile = Profile(7, 2, 100, samples, ())
    assert profile.total == 4
    shares = profile.stages()
    assert list(shares) == list(STAGES)
    assert {name: share for name, share in shares.items() if share} == {SOCKET: 0.25, PARSE: 0.25, HOP: 0.5}


def test_text_has_stages_functions_and_other_processes() -> None:
    text = Profile(7, 2, 100, read_samples(document()), [OtherProcess(9, "halimede-m_0", 0.5)]).text()
    lines = text.splitlines()
    assert lines[0] == "process 7: 2 s, 100 samples a second, 4 of them at work (0.02 cores)"
    assert any(line.startswith("hop        50.0%  to a thread") for line in lines)
    assert "hop        50.0%  Channel.send (workers/channel.py)" in lines
    assert lines[-1] == "      9    0.50  halimede-m_0"


def test_profile_without_samples_has_no_shares() -> None:
    profile = Profile(7, 2, 100, {}, ())
    assert set(profile.stages().values()) == {0.0}
    assert "other processes" not in profile.text()


def test_flame_graph_begins_with_stages_and_leaves_out_idle_threads() -> None:
    made = with_stages(document(), "mine")
    assert made["name"] == "mine"
    assert made["$schema"] == document()["$schema"]
    [main] = made["profiles"]
    names = [[made["shared"]["frames"][number]["name"] for number in sample] for sample in main["samples"]]
    assert names == [
        [PARSE, "Runner.run", "RequestDecoder.decode"],
        [HOP, "Runner.run", "Channel.send"],
        [SOCKET, "Runner.run"],
        [HOP, "Runner.run", "Channel.send"],
    ]
    assert len(main["weights"]) == 4
    assert main["endValue"] == sum(main["weights"])
