"""Translate with the server and hold its answers against transformers: `python -m examples.t5_python.client`.

It shows the translations of the texts on the command line, and compares those of all numbers besides.
"""

import argparse
import sys
from typing import Any

import numpy as np
import torch
import tritonclient.http as triton
from transformers import PreTrainedTokenizerFast, T5ForConditionalGeneration
from transformers.utils import logging

from examples.t5_python.number_words import NUMBERS, PREFIX, english, german, held_out

BATCH = 32


def translate(client: triton.InferenceServerClient, texts: list[str]) -> list[str]:
    """What the server makes of the texts."""
    rows = np.array([[text.encode()] for text in texts], np.object_)
    tensor = triton.InferInput("TEXT", rows.shape, "BYTES")
    tensor.set_data_from_numpy(rows)
    answer = client.infer("t5", [tensor]).as_numpy("TRANSLATION")
    return [text.decode() for text in answer[:, 0]]


def translate_here(checkpoint: str, texts: list[str]) -> list[str]:
    """What transformers makes of the texts in this process, all as one batch."""
    logging.disable_progress_bar()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(checkpoint)
    model: Any = T5ForConditionalGeneration.from_pretrained(checkpoint)
    tokens = tokenizer([PREFIX + text for text in texts], padding=True, return_tensors="pt")
    with torch.inference_mode():
        generated = model.generate(
            input_ids=tokens.input_ids, attention_mask=tokens.attention_mask, max_new_tokens=64
        )
    return list(tokenizer.batch_decode(generated, skip_special_tokens=True))


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument(
    "--checkpoint",
    default="build/t5-python/models/t5/1/checkpoint",
    help="what the server's model was built with",
)
parser.add_argument("--numbers", type=int, default=NUMBERS, help="the numbers below this one")
parser.add_argument("texts", nargs="*", default=[english(number) for number in range(7, NUMBERS, 237)])
arguments = parser.parse_args()

numbers = range(arguments.numbers)
texts = [english(number) for number in numbers] + arguments.texts
with triton.InferenceServerClient(arguments.http) as client:
    served = [
        translation
        for start in range(0, len(texts), BATCH)
        for translation in translate(client, texts[start : start + BATCH])
    ]

for text, translation in zip(arguments.texts, served[len(numbers) :], strict=True):
    print(f"{text} → {translation}")
for text, translation, itself in zip(texts, served, translate_here(arguments.checkpoint, texts), strict=True):
    if translation != itself:
        sys.exit(f"wrong answer: '{text}' is '{translation}' to the server, and '{itself}' to transformers")
right = {number for number in numbers if served[number] == german(number)}
unseen = held_out(arguments.numbers)
print(f"{len(texts)} translations are those of transformers")
print(
    f"{len(right)} of {len(numbers)} numbers are right, {len(right & unseen)} of the {len(unseen)} that training "
    f"did not see"
)
