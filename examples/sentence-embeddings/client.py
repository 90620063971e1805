"""Print how alike sentences are: the dot products of their embeddings."""

import argparse

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument(
    "sentences",
    nargs="*",
    default=[
        "A man is playing a guitar.",
        "Someone makes music on a string instrument.",
        "The stock market fell by three percent.",
        "Shares lost value on the exchange.",
    ],
)
arguments = parser.parse_args()

texts = np.array([[sentence.encode()] for sentence in arguments.sentences], np.object_)
tensor = triton.InferInput("TEXT", texts.shape, "BYTES")
tensor.set_data_from_numpy(texts)
with triton.InferenceServerClient(arguments.http) as client:
    embeddings = client.infer("sentence_embeddings", [tensor]).as_numpy("EMBEDDING")

for sentence, row in zip(arguments.sentences, embeddings @ embeddings.T, strict=True):
    print("  ".join(f"{value:5.2f}" for value in row), " ", sentence)
