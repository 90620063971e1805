"""The manifests of `deploy/kubernetes`: against Kubernetes' schemas, and against what the server does.

KServe's schemas are in no package that is installed here. The container of its runtime is held against Kubernetes'
schemas, and the rest against the fields that KServe documents.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.commands import options

DIRECTORY = Path("deploy/kubernetes")
KUBERNETES = "1.34"
RUNTIME_FIELDS = {"annotations", "supportedModelFormats", "protocolVersions", "containers"}


def objects(name: str) -> dict[str, Any]:
    """Kind → the object of that kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((DIRECTORY / name).read_text())}


def flags(container: Any) -> dict[str, Any]:
    """The flags of a container, as the server reads them."""
    return options(["halimede", "serve", *container["args"]])


PLAIN = [(name, kind) for name in ("server.yaml", "autoscaling.yaml") for kind in objects(name)]


@pytest.mark.parametrize(("name", "kind"), PLAIN)
def test_object_is_what_kubernetes_takes(name: str, kind: str) -> None:
    found = objects(name)[kind]
    kubernetes_validate.validate(found, KUBERNETES, strict=True)
    found["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(found, KUBERNETES, strict=True)


def test_pods_stop_only_after_their_requests() -> None:
    pod = objects("server.yaml")["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    given = flags(container)
    assert pod["terminationGracePeriodSeconds"] > given["drain_delay_secs"] + given["exit_timeout_secs"]
    ready = container["readinessProbe"]
    assert given["drain_delay_secs"] >= 3 * ready["periodSeconds"]  # as many failures make a pod unready
    assert ready["httpGet"]["path"] == "/v2/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/v2/health/live"


def test_service_leads_to_ports_of_the_pods() -> None:
    manifest = objects("server.yaml")
    [container] = manifest["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    service = manifest["Service"]["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == ports
    given = flags(container)
    assert ports == {name: given[f"{name}_port"] for name in ("http", "grpc", "metrics")}
    template = manifest["Deployment"]["spec"]["template"]["metadata"]
    assert service["selector"].items() <= template["labels"].items()
    assert template["annotations"]["prometheus.io/port"] == str(ports["metrics"])


def test_autoscaler_scales_the_deployment() -> None:
    target = objects("autoscaling.yaml")["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    deployment = objects("server.yaml")["Deployment"]
    found = {
        "apiVersion": deployment["apiVersion"],
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
    }
    assert target == found


def test_runtime_has_fields_of_kserve_and_a_container_that_kubernetes_takes() -> None:
    runtime = objects("kserve.yaml")["ServingRuntime"]
    assert runtime["apiVersion"] == "serving.kserve.io/v1alpha1"
    assert set(runtime["spec"]) == RUNTIME_FIELDS
    for model_format in runtime["spec"]["supportedModelFormats"]:
        assert {"name", "version"} <= set(model_format) <= {"name", "version", "autoSelect", "priority"}
    [container] = runtime["spec"]["containers"]
    assert container["name"] == "kserve-container"  # KServe looks for this name
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [container]}}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    given = flags(container)
    assert given["http_port"] == container["ports"][0]["containerPort"]
    assert given["http_port"] == container["readinessProbe"]["httpGet"]["port"]
    assert runtime["spec"]["annotations"]["prometheus.kserve.io/port"] == str(given["metrics_port"])


def test_inference_service_names_the_runtime_and_a_format_of_it() -> None:
    manifest = objects("kserve.yaml")
    model = manifest["InferenceService"]["spec"]["predictor"]["model"]
    runtime = manifest["ServingRuntime"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in {each["name"] for each in runtime["spec"]["supportedModelFormats"]}
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
