"""What a notebook does: serve a function beside the program, and call it over HTTP and without a socket."""

import json
import urllib.request

from halimede import serve_in_background


def multiply(x: float, by: float = 2.0) -> float:
    return x * by


if __name__ == "__main__":
    with serve_in_background(multiply) as server:
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [21]}]}
        with urllib.request.urlopen(
            f"{server.url}/v2/models/multiply/infer", json.dumps(body).encode()
        ) as answer:
            print(json.load(answer)["outputs"][0]["data"])
        print(server.model("multiply")(x=1.5, by=4.0))
