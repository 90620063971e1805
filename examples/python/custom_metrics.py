"""Send numbers to the model `custom_metrics`, and show the metrics that it keeps of them."""

import argparse
import urllib.request

import numpy as np
import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
parser.add_argument("--metrics", default="localhost:8002", help="where it has its metrics")
arguments = parser.parse_args()

with triton.InferenceServerClient(arguments.http) as client:
    for values in ([0.0625, 0.5, 5.0], [50.0]):
        tensor = triton.InferInput("VALUES", [len(values)], "FP32")
        tensor.set_data_from_numpy(np.array(values, np.float32))
        client.infer("custom_metrics", [tensor])

with urllib.request.urlopen(f"http://{arguments.metrics}/metrics") as response:
    for line in response.read().decode().splitlines():
        if "example_" in line:
            print(line)
