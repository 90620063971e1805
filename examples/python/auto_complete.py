"""Show what the models without config.pbtxt have said of themselves."""

import argparse

import tritonclient.http as triton

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--http", default="localhost:8000", help="where the server listens for HTTP")
arguments = parser.parse_args()

with triton.InferenceServerClient(arguments.http) as client:
    for model in ("batch_auto_complete", "nobatch_auto_complete"):
        config = client.get_model_config(model)
        batching = "dynamic batching" if "dynamic_batching" in config else "no dynamic batching"
        print(f"{model}: max_batch_size {config['max_batch_size']}, {batching}")
        for tensor in config["input"] + config["output"]:
            print(f"  {tensor['name']} {tensor['data_type']} {tensor['dims']}")
