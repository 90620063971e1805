"""The engine inside an application: see docs/in-process.md. Its models are those of `make serve`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import halimede


def describe(scores: list[float]) -> str:
    """The place of the highest score."""
    return f"class {int(np.argmax(scores))} of {len(scores)}"


async def ask(server: halimede.Server, image: npt.NDArray[Any]) -> None:
    """Call a model from an event loop."""
    async for response in server.model("digits").async_infer({"image": image}):
        print("asynchronously", response.outputs["probabilities"].shape)


if __name__ == "__main__":
    built = Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples")
    with halimede.Server([describe], model_repository=built / "models") as server:
        image = np.fromfile(built / "digit.bin", np.uint8).reshape(1, 8, 8)
        for response in server.model("digits").infer({"image": image}, request_id="one"):
            probabilities = response.outputs["probabilities"]
            print(response.request_id, probabilities.dtype, probabilities.shape, probabilities.argmax())
        print(server.model("describe")(scores=probabilities[0])["output"])
        asyncio.run(ask(server, image))
        print(server.model("digits").metadata()["inputs"])
        print(server.model("digits").statistics()["model_stats"][0]["inference_count"], "requests")
