"""Send texts of different lengths to BERT, all at once, and hold the answers against PyTorch's."""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from numpy.typing import NDArray
from tokenizers import Tokenizer

from examples.answers import difference, tensor
from examples.bert.texts import PADDING, TEXTS, load_tokenizer

MODELS = ("bert_torchscript", "bert_onnx")
OUTPUTS = ("last_hidden_state", "pooler_output")


def padded(tokenizer: Tokenizer, text: str) -> tuple[list[triton.InferInput], int]:
    """The inputs for a text, padded to a multiple of 16 tokens, and how many of them are the text's."""
    ids = tokenizer.encode(text).ids
    shape = 1, -(-len(ids) // PADDING) * PADDING
    input_ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    input_ids[0, : len(ids)] = ids
    mask[0, : len(ids)] = 1
    return [tensor("input_ids", input_ids), tensor("attention_mask", mask)], len(ids)


def largest_difference(
    result: triton.InferResult, tokens: int, answer: dict[str, NDArray[np.float32]], index: int
) -> float:
    """How far an answer is from PyTorch's for text `index`; what is said of padding counts for nothing."""
    hidden, pooled = (result.as_numpy(name)[0] for name in OUTPUTS)
    return max(
        difference(hidden[:tokens], answer[f"hidden_{index}"]), difference(pooled, answer[f"pooled_{index}"])
    )


def executions(client: triton.InferenceServerClient, model: str) -> tuple[int, int]:
    """How many inferences the model has done so far, and in how many executions."""
    [statistics] = client.get_inference_statistics(model)["model_stats"]
    return statistics["inference_count"], statistics["execution_count"]


def ask(client: triton.InferenceServerClient, model: str, directory: Path, *, chatty: bool) -> None:
    """Send the texts and print how the answers compare."""
    tokenizer = load_tokenizer(directory / "tokenizer.json")
    answer = dict(np.load(directory / "answers.npz"))
    inferences, runs = executions(client, model)
    requests = [padded(tokenizer, text) for text in TEXTS]
    sent = [client.async_infer(model, inputs) for inputs, _ in requests]
    found = []
    for index, (one, (inputs, tokens)) in enumerate(zip(sent, requests, strict=True)):
        found.append(largest_difference(one.get_result(), tokens, answer, index))
        if chatty:
            print(f"{tokens:3} tokens, padded to {inputs[0].shape()[1]:2}: {TEXTS[index][:60]}")
    more_inferences, more_runs = executions(client, model)
    print(
        f"{model}: {more_inferences - inferences} requests in {more_runs - runs} executions; "
        f"largest difference {max(found):.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
    parser.add_argument("--directory", type=Path, default=Path("build/bert"), help="what was built")
    arguments = parser.parse_args()
    with triton.InferenceServerClient(arguments.http, concurrency=len(TEXTS), network_timeout=600) as client:
        for model in MODELS:
            ask(client, model, arguments.directory, chatty=model == MODELS[0])


if __name__ == "__main__":
    main()
