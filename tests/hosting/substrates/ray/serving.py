"""A host whose instances are on the nodes of a Ray cluster."""

import io
import json
import random
import secrets
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import marked
from tests.support.host import HostProcess, start_host
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/x"
VARIANT = "A"

_PROGRAM = """#!{python} -SE
import json, os, socketserver, sys, time
from http.server import BaseHTTPRequestHandler

print("serving", sys.argv[1:], flush=True)
names = sorted(os.listdir("/opt/ml/model")) if os.path.isdir("/opt/ml/model") else []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if body == b"exit":
            print("told to exit", flush=True)
            os._exit(3)
        if body.startswith(b"print "):
            print(body[6:].decode(), flush=True)
        if body.startswith(b"sleep "):
            time.sleep(float(body[6:]))
        gpus = os.environ["CUDA_VISIBLE_DEVICES"]
        text = json.dumps(dict(pid=os.getpid(), names=names, niceness=os.nice(0), gpus=gpus)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


Server(("", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler).serve_forever()
"""


until = partial(wait_until, timeout=120, longest_s=0.05)
"""Waits for what a cluster does, which takes seconds."""


def unique(name: str) -> str:
    """A name that no endpoint had before: logs outlive endpoints."""
    return f"{name}-{secrets.token_hex(4)}"


class Hosted:
    """A host, and what tests do with it.

    Attributes:
        host: the process.
        program: the image of an instance that says its process number.
        nodes: where nodes keep what instances need.
    """

    def __init__(self, host: HostProcess, directory: Path, program: Path, nodes: Path) -> None:
        self.host = host
        self.directory = directory
        self.program = program
        self.nodes = nodes
        self.sagemaker = host.client("sagemaker")
        self.runtime = host.client("sagemaker-runtime")

    def create(self, name: str = "e", count: int = 1, *, wait: bool = True, **container: Any) -> None:
        """Create an endpoint of so many instances."""
        self.configure(name, count, **container)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
        if wait:
            assert self.settled(name) == "InService", self.describe(name)

    def configure(
        self, name: str, count: int = 1, instance_type: str = "ml.local.cpu", **container: Any
    ) -> None:
        """Create a model and a configuration; `Containers` are all of its containers, if those are several."""
        several = container.pop("Containers", None)
        one = {"Image": str(self.program), **container}
        containers = {"PrimaryContainer": one} if several is None else {"Containers": several}
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, **containers)
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[
                {
                    "VariantName": VARIANT,
                    "ModelName": name,
                    "InstanceType": instance_type,
                    "InitialInstanceCount": count,
                }
            ],
        )

    def describe(self, name: str = "e") -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        return found

    def waits(self, name: str = "e") -> str:
        """What an endpoint waits for; "" if for nothing."""
        summary = self.describe(name).get("PendingDeploymentSummary", {})
        statuses = [each.get("VariantStatus", []) for each in summary.get("ProductionVariants", ())]
        return "".join(status["StatusMessage"] for each in statuses for status in each)

    def settled(self, name: str = "e") -> str:
        """The state in which an endpoint settles."""
        until(
            lambda: self.describe(name)["EndpointStatus"] in ("InService", "Failed"), f"the endpoint {name}"
        )
        return str(self.describe(name)["EndpointStatus"])

    def scale(self, count: int, name: str = "e") -> None:
        """Have so many instances, some time."""
        self.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=name,
            DesiredWeightsAndCapacities=[{"VariantName": VARIANT, "DesiredInstanceCount": count}],
        )

    def delete(self, name: str = "e") -> None:
        """Delete an endpoint, and return once it is gone."""
        self.sagemaker.delete_endpoint(EndpointName=name)

        def is_gone() -> bool:
            return name not in [each["EndpointName"] for each in self.sagemaker.list_endpoints()["Endpoints"]]

        until(is_gone, f"the end of the endpoint {name}")

    def clear(self) -> None:
        """Delete all endpoints, configurations and models."""
        for each in self.sagemaker.list_endpoints()["Endpoints"]:
            self.delete(each["EndpointName"])
        for each in self.sagemaker.list_endpoint_configs()["EndpointConfigs"]:
            self.sagemaker.delete_endpoint_config(EndpointConfigName=each["EndpointConfigName"])
        for each in self.sagemaker.list_models()["Models"]:
            self.sagemaker.delete_model(ModelName=each["ModelName"])
        self.wait_until_nothing_is_left()

    def wait_until_nothing_is_left(self) -> None:
        """Return once nothing of any instance is left on any node."""
        until(lambda: not marked(self.nodes), "the end of all processes")
        until(lambda: not list(self.nodes.glob("*/*/instances/*")), "the end of all instances")

    def ask(self, body: str = "", name: str = "e") -> Mapping[str, Any]:
        """What an instance answers."""
        answer = self.runtime.invoke_endpoint(EndpointName=name, Body=body)
        document: Mapping[str, Any] = json.loads(answer["Body"].read())
        return document

    def serves(self, name: str = "e") -> bool:
        """Whether there is an instance that answers."""
        return self.pid(name) != 0

    def pid(self, name: str = "e") -> int:
        """The process of the instance that answers; 0 if none does."""
        try:
            return int(self.ask(name=name)["pid"])
        except ClientError:
            return 0

    def pids(self, name: str = "e", asks: int = 30) -> set[int]:
        """The instances' processes, by asking again and again."""
        return {self.ask(name=name)["pid"] for _ in range(asks)}

    def nodes_of(self) -> dict[str, str]:
        """Instance → the node that it is on, by their marks."""
        marks = marked(self.nodes).values()
        return {mark.name: mark.parent.parent.name for mark in marks}

    def put_archive(self, key: str = "model.tar.gz", size: int = 1000) -> str:
        """An archive in the host's store: its URL."""
        s3 = self.host.client("s3")
        if "models" not in [each["Name"] for each in s3.list_buckets()["Buckets"]]:
            s3.create_bucket(Bucket="models")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            info = tarfile.TarInfo("weights.bin")
            info.size = size
            archive.addfile(info, io.BytesIO(random.randbytes(size)))
        s3.put_object(Bucket="models", Key=key, Body=packed.getvalue())
        return f"s3://models/{key}"


@contextmanager
def hosted(directory: Path, cluster: RayCluster | None, *flags: str, at: str = "host") -> Iterator[Hosted]:
    """A host on a cluster; when it is stopped, nothing of it is left on any node."""
    program = directory / "serve-program"
    if not program.exists():
        program.write_text(_PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
    nodes = directory / "nodes"
    ray = [] if cluster is None else [f"--ray-address={cluster.address}"]
    with start_host(
        directory / at, "--substrate=ray", *ray, f"--node-directory={nodes}", "--describe-hold=0", *flags
    ) as host:
        of = Hosted(host, directory / at, program, nodes)
        yield of
    of.wait_until_nothing_is_left()
