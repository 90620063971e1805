"""Tokenize and run all texts in a bare loop over ONNX Runtime, sorted by length, and say how many a second that is.

python -m benchmarks.embeddings.bare MODEL TOKENIZER THREADS BATCH COUNT
"""

import json
import sys
import time

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from benchmarks.embeddings.texts import mixed_texts

MAX_TOKENS = 256


def main() -> None:
    model, vocabulary, threads, batch, count = sys.argv[1:]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(vocabulary)
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    texts = sorted(mixed_texts()[: int(count)], key=len)
    batches = [texts[first : first + int(batch)] for first in range(0, len(texts), int(batch))]

    def run(part: list[str]) -> None:
        encodings = tokenizer.encode_batch_fast(part)
        ids = np.array([each.ids for each in encodings], np.int64)
        mask = np.array([each.attention_mask for each in encodings], np.int64)
        session.run(None, {"input_ids": ids, "attention_mask": mask})

    run(batches[0])
    run(batches[-1])
    began, cpu = time.monotonic(), time.process_time()
    for part in batches:
        run(part)
    rate = len(texts) / (time.monotonic() - began)
    print(json.dumps({"rate": rate, "cpu_us": (time.process_time() - cpu) / len(texts) * 1e6}))


if __name__ == "__main__":
    main()
