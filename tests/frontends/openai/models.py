"""Small Python models for OpenAI's API."""

import json
from pathlib import Path

from tests.python_models.support import IN_SERVER, python_model

WRITER_CONFIG = """
model_transaction_policy { decoupled: true }
input [
  { name: "text_input" data_type: TYPE_STRING dims: [1] },
  { name: "stream" data_type: TYPE_BOOL dims: [1] optional: true },
  { name: "sampling_parameters" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "exclude_input_in_output" data_type: TYPE_BOOL dims: [1] optional: true },
  { name: "return_finish_reason" data_type: TYPE_BOOL dims: [1] optional: true },
  { name: "return_num_input_tokens" data_type: TYPE_BOOL dims: [1] optional: true },
  { name: "return_num_output_tokens" data_type: TYPE_BOOL dims: [1] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [-1] },
  { name: "finish_reason" data_type: TYPE_STRING dims: [-1] },
  { name: "num_input_tokens" data_type: TYPE_UINT32 dims: [1] },
  { name: "num_output_tokens" data_type: TYPE_UINT32 dims: [-1] }
]
"""
"""The tensors of Triton's vLLM backend."""

WRITER = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.write, args=(request, request.get_response_sender())).start()

    def write(self, request, sender):
        value = lambda name: pb_utils.get_input_tensor_by_name(request, name)
        prompt = value("text_input").as_numpy()[0].decode()
        stream = bool(value("stream").as_numpy()[0])
        options = json.loads(value("sampling_parameters").as_numpy()[0])
        assert bool(value("exclude_input_in_output").as_numpy()[0])
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

        def tell(text, tokens, reason="None"):
            sender.send(pb_utils.InferenceResponse([
                pb_utils.Tensor("text_output", np.array([text], object)),
                pb_utils.Tensor("finish_reason", np.array([reason], object)),
                pb_utils.Tensor("num_input_tokens", np.array([len(prompt.split())], np.uint32)),
                pb_utils.Tensor("num_output_tokens", np.array([tokens], np.uint32)),
            ]))

        def fail(text, code=pb_utils.TritonError.UNAVAILABLE):
            error = pb_utils.TritonError(text, code)
            sender.send(pb_utils.InferenceResponse(error=error), final)

        if "fail now" in prompt:
            return fail("no room for this prompt")
        if "too long" in prompt:
            length = len(prompt)
            text = f"The decoder prompt (length {length}) is longer than the maximum model length of 16."
            return fail(text, pb_utils.TritonError.INTERNAL)
        if "patient" in prompt:
            tell(b"word ", 1)
            while not sender.is_cancelled():
                time.sleep(0.02)
            print("cancelled: " + prompt.split()[-1], flush=True)
            return sender.send(flags=final)
        if "endless" in prompt:
            number = 0
            while not sender.is_cancelled():
                tell((b"word " * 20_000) if "wide" in prompt else b"word ", 1)
                number += 1
                print("wrote", number, flush=True) if "wide" in prompt and number % 10 == 0 else time.sleep(0.005)
            print("cancelled: " + prompt.split()[-1], flush=True)
            return sender.send(flags=final)
        if "options" in prompt:
            words = [json.dumps(options, sort_keys=True).encode()]
        elif "halves" in prompt:
            words = [b"a\\xe2\\x82", b"b\\xff", b"c", b"\\xf0\\x9f"]
        elif "character" in prompt:
            words = [bytes([byte]) for byte in "aé€😀".encode()]
        else:
            words = [word.encode() + b" " for word in prompt.split()]
        limit = options.get("max_tokens", len(words))
        reason = "length" if limit < len(words) else "stop"
        words = words[:limit]
        if not stream:
            words = [b"".join(words)]
        for number, word in enumerate(words):
            last = number == len(words) - 1
            tell(word, 1 if stream else min(limit, 99), reason if last else "None")
            if "fail late" in prompt:
                return fail("the model has lost its thread")
        sender.send(flags=final)
"""

SQUASH_CONFIG = """
max_batch_size: 4
input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
output [{ name: "EMBEDDING" data_type: TYPE_FP32 dims: [3] }]
parameters { key: "openai.task" value: { string_value: "embeddings" } }
"""
SQUASH = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[:, 0]
            rows = [[len(text), text[:1] == b"a", 0.5] for text in texts]
            tensor = pb_utils.Tensor("EMBEDDING", np.array(rows, np.float32))
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
"""

TOOLS_CONFIG = """
input [
  { name: "CONVERSATION" data_type: TYPE_STRING dims: [1] },
  { name: "TOOLS" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "response_format" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "logprobs" data_type: TYPE_BOOL dims: [1] optional: true },
  { name: "HEAT" data_type: TYPE_FP32 dims: [1] optional: true }
]
output [
  { name: "ANSWER" data_type: TYPE_STRING dims: [1] },
  { name: "CALLS" data_type: TYPE_STRING dims: [1] },
  { name: "LOGS" data_type: TYPE_STRING dims: [1] }
]
parameters { key: "openai.task" value: { string_value: "chat" } }
parameters { key: "openai.output" value: { string_value: "ANSWER" } }
parameters { key: "openai.input.messages" value: { string_value: "CONVERSATION" } }
parameters { key: "openai.input.tools" value: { string_value: "TOOLS" } }
parameters { key: "openai.input.temperature" value: { string_value: "HEAT" } }
parameters { key: "openai.output.tool_calls" value: { string_value: "CALLS" } }
parameters { key: "openai.output.logprobs" value: { string_value: "LOGS" } }
"""
TOOLS = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            given = {}
            for name in ("CONVERSATION", "TOOLS", "response_format", "HEAT"):
                tensor = pb_utils.get_input_tensor_by_name(request, name)
                if tensor is not None:
                    value = tensor.as_numpy()[0]
                    given[name] = float(value) if name == "HEAT" else json.loads(value)
            calls = b""
            if "TOOLS" in given:
                function = given["TOOLS"][0].get("function", {"name": "other"})
                call = {"name": function["name"], "arguments": "{}"}
                calls = json.dumps([{"id": "call_1", "type": "function", "function": call}]).encode()
            logs = b""
            if pb_utils.get_input_tensor_by_name(request, "logprobs") is not None:
                told = {"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": []}
                count = 5000 if "many tokens" in json.dumps(given) else 1
                logs = json.dumps({"content": [told] * count}).encode()
                if "cut" in json.dumps(given):
                    logs = logs[:-1]
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("ANSWER", np.array([json.dumps(given).encode()], object)),
                pb_utils.Tensor("CALLS", np.array([calls], object)),
                pb_utils.Tensor("LOGS", np.array([logs], object)),
            ]))
        return responses
"""

CALLER_CONFIG = """
model_transaction_policy { decoupled: true }
input [
  { name: "messages" data_type: TYPE_STRING dims: [1] },
  { name: "tools" data_type: TYPE_STRING dims: [1] optional: true }
]
output [
  { name: "ANSWER" data_type: TYPE_STRING dims: [1] },
  { name: "tool_calls" data_type: TYPE_STRING dims: [1] }
]
parameters { key: "openai.task" value: { string_value: "chat" } }
"""
CALLER = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.call, args=(request, request.get_response_sender())).start()

    def call(self, request, sender):
        messages = json.loads(pb_utils.get_input_tensor_by_name(request, "messages").as_numpy()[0])
        last = messages[-1]["content"]
        calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
        text = json.dumps(calls).encode()
        if last == "half":
            text = text[:20]
        elif last == "bytes":
            text = text.replace(b"look", b"\\xe2\\x82")
        elif last == "nameless":
            text = b'[{"function": {}}]'
        for answer, calls in ((b"so ", b""), (b"", text)):
            sender.send(pb_utils.InferenceResponse([
                pb_utils.Tensor("ANSWER", np.array([answer], object)),
                pb_utils.Tensor("tool_calls", np.array([calls], object)),
            ]))
        if last.startswith("patient"):
            while not sender.is_cancelled():
                time.sleep(0.02)
            print("cancelled: " + last.split()[-1], flush=True)
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""A model that calls a tool after a word, and may say nothing more until it is cancelled."""

PLAIN_CONFIG = """
input [{ name: "text_input" data_type: TYPE_STRING dims: [1] }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [1] }]
"""
PLAIN = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "text_output", pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
            )])
            for request in requests
        ]
"""

SLOW_TEMPLATES = {
    "slow": "{% for number in range(50000) %}{% endfor %}rounds: 50000",
    "endless": "{% for number in range(99999) %}{% for other in range(99999) %}{% if other in [1, 2, 3, 4, 5] %}"
    "{% endif %}{% endfor %}{% endfor %}",
}

CHATTER_TEMPLATE = (
    "{% for each in [tone, reasoning_effort] %}{% if each %}{{ each }} {% endif %}{% endfor %}"
    "{% for each in documents or [] %}{{ each.title }} {% endfor %}"
    "{% for message in messages %}{{ message.role }}={{ message.content }};{% endfor %}"
    "{% if add_generation_prompt %}assistant={% endif %}"
)

TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "{{ message.role }}: {{ message.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


VLLM_EMBEDDER_CONFIG = """
model_transaction_policy { decoupled: true }
input [
  { name: "text_input" data_type: TYPE_STRING dims: [1] },
  { name: "embedding_request" data_type: TYPE_STRING dims: [1] optional: true },
  { name: "return_num_input_tokens" data_type: TYPE_BOOL dims: [1] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [-1] },
  { name: "num_input_tokens" data_type: TYPE_UINT32 dims: [1] }
]
"""
"""The tensors of Triton's vLLM backend that embeddings need."""

VLLM_EMBEDDER = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            value = lambda name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0]
            asked = json.loads(value("embedding_request"))
            assert bool(value("return_num_input_tokens"))
            length = asked.get("pooling_params", {}).get("dimensions", [4])[0]
            vector = [len(asked["input"]) + 0.25] * length
            request.get_response_sender().send(
                pb_utils.InferenceResponse([
                    pb_utils.Tensor("text_output", np.array([json.dumps(vector)], object)),
                    pb_utils.Tensor("num_input_tokens", np.array([len(asked["input"].split())], np.uint32)),
                ]),
                pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
            )
"""


def write_repository(directory: Path) -> None:
    """Write the models. Those that are not told of cancellations run in the server, which starts sooner so."""
    python_model(directory, "writer", WRITER, WRITER_CONFIG)
    config = {"chat_template": TEMPLATE, "bos_token": {"content": "<s>"}}
    (directory / "writer" / "1" / "tokenizer_config.json").write_text(json.dumps(config))
    python_model(directory, "embedder", VLLM_EMBEDDER, VLLM_EMBEDDER_CONFIG + IN_SERVER)
    python_model(directory, "squash", SQUASH, SQUASH_CONFIG + IN_SERVER)
    python_model(directory, "tools", TOOLS, TOOLS_CONFIG + IN_SERVER)
    python_model(directory, "caller", CALLER, CALLER_CONFIG)
    python_model(directory, "plain", PLAIN, PLAIN_CONFIG + IN_SERVER)
    unknown = PLAIN_CONFIG.replace("text_", "TEXT_") + IN_SERVER
    python_model(directory, "other", PLAIN.replace("text_", "TEXT_"), unknown)
    wrong = unknown + 'parameters { key: "openai.task" value: { string_value: "chatter" } }'
    python_model(directory, "wrong", PLAIN.replace("text_", "TEXT_"), wrong)
    for name in ("plain", "squash"):
        write_tokenizer(directory / name / "tokenizer.json")
    python_model(directory, "chatter", PLAIN, PLAIN_CONFIG + IN_SERVER)
    (directory / "chatter" / "1" / "chat_template.jinja").write_text(CHATTER_TEMPLATE)
    for name, rounds in SLOW_TEMPLATES.items():
        python_model(directory, name, PLAIN, PLAIN_CONFIG + IN_SERVER)
        (directory / name / "1" / "chat_template.jinja").write_text(rounds)
    python_model(directory, "teller", PLAIN, PLAIN_CONFIG + IN_SERVER)
    write_speller(directory / "teller")
    python_model(directory, "picky", PLAIN, PLAIN_CONFIG + IN_SERVER)
    write_tokenizer(directory / "picky" / "tokenizer.json", fails=True)


SPELLER_WORDS = ("<s>", "<unk>", *map(str, range(10)), "hello", "world", "user=hello;", "assistant=")
"""The words of the tokenizer that `write_speller` writes, whose numbers are their tokens."""


def write_speller(directory: Path) -> None:
    """Write the files of a language model: a tokenizer of a few words, which begins each text, and a template."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    vocabulary = {word: number for number, word in enumerate(SPELLER_WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(
        "{% if tone %}{{ tone }} {% endif %}{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
        "{% for message in messages %}{{ message.role }}={{ message.content }}; {% endfor %}"
        "{% if add_generation_prompt %}assistant={% endif %}"
    )
    (directory / "config.json").write_text(json.dumps({"max_position_embeddings": 48}))


def write_tokenizer(path: Path, *, fails: bool = False) -> None:
    """Write a tokenizer whose tokens are words; `fails` on every word."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="absent" if fails else "[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.enable_padding(length=100)  # as some files have it, which is not what a text has of tokens
    tokenizer.enable_truncation(2)
    tokenizer.save(str(path))
