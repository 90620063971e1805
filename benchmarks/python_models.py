"""Repositories of Python models, written under build/bench."""

import shutil
from pathlib import Path

import numpy as np

from benchmarks.models import REPOSITORIES

SOURCES = Path(__file__).parent / "served"
ENSEMBLE_STEPS = 3
SEQUENCE_CONTROLS = """control_input [
    { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } },
    { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } },
    { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } },
    { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  ]"""
STRING_LENGTHS = (4, 16)
IN_SERVER = 'parameters { key: "isolation" value { string_value: "none" } }\n'


def identity(data_type: str = "TYPE_FP32", dims: int = 16, further: str = "") -> Path:
    """`identity`: one tensor of one dimension, -1 for any length; `further` goes into its configuration."""
    directory = empty(f"python-identity-{data_type}-{dims}{'-in-server' * bool(further)}")
    add(directory, "identity", "identity", tensors(data_type, dims) + further)
    return directory


def untouched() -> Path:
    """`untouched`: FP32 of any length, which is not looked at; INT32 [1] out."""
    directory = empty("python-untouched")
    config = """input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
"""
    add(directory, "untouched", "untouched", config)
    return directory


def ensemble(further: str = "") -> Path:
    """`ensemble`: FP32 [16] through three models, each one that `identity` describes."""
    directory = empty(f"python-ensemble{'-in-server' * bool(further)}")
    steps = []
    for step in range(ENSEMBLE_STEPS):
        add(directory, f"step{step}", "identity", tensors("TYPE_FP32", 16) + further)
        source = f"between{step - 1}" if step else "INPUT0"
        target = f"between{step}" if step < ENSEMBLE_STEPS - 1 else "OUTPUT0"
        steps.append(f"""  step {{
    model_name: "step{step}"
    model_version: -1
    input_map {{ key: "INPUT0" value: "{source}" }}
    output_map {{ key: "OUTPUT0" value: "{target}" }}
  }}
""")
    (directory / "ensemble" / "1").mkdir(parents=True)
    (directory / "ensemble" / "config.pbtxt").write_text(
        f'platform: "ensemble"\n{tensors("TYPE_FP32", 16)}ensemble_scheduling {{\n{"".join(steps)}}}\n'
    )
    return directory


def three_calls(further: str = "") -> Path:
    """`three_calls`: FP32 [16], handed to `identity` three times."""
    directory = empty(f"python-bls{'-in-server' * bool(further)}")
    add(directory, "identity", "identity", tensors("TYPE_FP32", 16) + further)
    add(directory, "three_calls", "three_calls", tensors("TYPE_FP32", 16) + further)
    return directory


def counter() -> Path:
    """`counter`: INT32 [1] in, as many responses of INT32 [1] out."""
    directory = empty("python-decoupled")
    policy = "model_transaction_policy { decoupled: true }\n"
    add(directory, "counter", "counter", tensors("TYPE_INT32", 1) + policy)
    return directory


def silent() -> Path:
    """`silent`: a text in, the first piece of one out, and then nothing; its template is the text itself."""
    directory = empty("python-silent")
    config = """input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }
output { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }
model_transaction_policy { decoupled: true }
"""
    add(directory, "silent", "silent", config)
    (directory / "silent" / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    return directory


def accumulator(strategy: str, sequences: int, idle_us: int = 60_000_000) -> Path:
    """`accumulator`: INT32 [1] in, its sum over the sequence out; the strategy is "oldest" or "direct"."""
    directory = empty(f"python-accumulator-{strategy}")
    oldest = f"oldest {{ max_candidate_sequences: {sequences} }}"
    batching = f"""max_batch_size: {min(64, sequences)}
sequence_batching {{
  max_sequence_idle_microseconds: {idle_us}
  {oldest if strategy == "oldest" else "direct { }"}
  {SEQUENCE_CONTROLS}
}}
"""
    add(directory, "accumulator", "accumulator", tensors("TYPE_INT32", 1) + batching)
    return directory


def stepwise(callers: int) -> Path:
    """`stepwise`: INT32 [1] in, as many responses of INT32 [1] out, one a step: an iterative model."""
    directory = empty("python-stepwise")
    batching = f"""max_batch_size: {callers}
model_transaction_policy {{ decoupled: true }}
sequence_batching {{
  iterative_sequence: true
  max_sequence_idle_microseconds: 60000000
  oldest {{ max_candidate_sequences: {callers} }}
  {SEQUENCE_CONTROLS}
}}
"""
    add(directory, "stepwise", "stepwise", tensors("TYPE_INT32", 1) + batching)
    return directory


def empty(name: str) -> Path:
    """An empty repository."""
    directory = REPOSITORIES / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def add(repository: Path, model: str, source: str, config: str) -> None:
    """Put a model into the repository."""
    (repository / model / "1").mkdir(parents=True)
    shutil.copyfile(SOURCES / f"{source}.py", repository / model / "1" / "model.py")
    instances = "instance_group { kind: KIND_CPU count: 1 }\n"
    (repository / model / "config.pbtxt").write_text(f'backend: "python"\n{config}{instances}')


def tensors(data_type: str, dims: int) -> str:
    """The part of a configuration that says what comes in and goes out."""
    return f"""input {{ name: "INPUT0" data_type: {data_type} dims: [ {dims} ] }}
output {{ name: "OUTPUT0" data_type: {data_type} dims: [ {dims} ] }}
"""


def strings(count: int) -> Path:
    """Data for perf_analyzer: as INPUT0 so many strings, each on a line."""
    return data("strings", b"".join(word + b"\n" for word in words(count)))


def words(count: int) -> list[bytes]:
    """So many strings of letters."""
    random = np.random.default_rng(0)
    letters = random.integers(ord("a"), ord("z") + 1, (count, STRING_LENGTHS[1]), np.uint8)
    lengths = random.integers(*STRING_LENGTHS, count, endpoint=True)
    return [bytes(row[:length]) for row, length in zip(letters, lengths, strict=True)]


def number(value: int) -> Path:
    """Data for perf_analyzer: as INPUT0 one INT32."""
    return data("number", np.int32(value).tobytes())


def data(name: str, content: bytes) -> Path:
    """A directory with the file `INPUT0`."""
    directory = REPOSITORIES / f"python-{name}-data"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "INPUT0").write_bytes(content)
    return directory
