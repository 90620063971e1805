"""sentence-transformers behind FastAPI, as its users serve it, with base64 in answers as OpenAI's API has it.

python -m benchmarks.embeddings.fastapi_server CHECKPOINT PORT THREADS
"""

import base64
import sys
from typing import Any

import fastapi
import pydantic
import torch
import uvicorn
from sentence_transformers import SentenceTransformer


class Question(pydantic.BaseModel):
    """What a client asks."""

    model: str
    input: str
    encoding_format: str = "float"


def application(checkpoint: str) -> fastapi.FastAPI:
    """The program."""
    model = SentenceTransformer(checkpoint, device="cpu")
    app = fastapi.FastAPI()

    @app.get("/v2/health/ready")
    def ready() -> None:
        """It is."""

    @app.post("/v1/embeddings")
    def embed(question: Question) -> dict[str, Any]:
        """One text's embedding; FastAPI calls this on a thread, as many at a time as there are callers."""
        vector = model.encode(question.input, show_progress_bar=False)
        embedding: Any = vector.tolist()
        if question.encoding_format == "base64":
            embedding = base64.b64encode(vector.tobytes()).decode()
        data = [{"object": "embedding", "index": 0, "embedding": embedding}]
        return {"object": "list", "data": data, "model": question.model}

    return app


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    uvicorn.run(application(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
