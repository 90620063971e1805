"""The manifests of `examples/kubernetes`: against Kubernetes' schemas, and as Ray's autoscaler reads them.

KubeRay's schema of a RayCluster is in no package that is installed here. Its pods are held against Kubernetes' schemas,
and the rest against the fields that KubeRay documents.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler._private.resource_demand_scheduler import _default_utilization_scorer, get_nodes_for

from halimede.cli.hosting.host import command
from halimede.hosting.substrates.catalogue import read_catalogue
from halimede.hosting.substrates.ray.launch import Shape

DIRECTORY = Path("examples/kubernetes")
KUBERNETES = "1.34"
SCORER: Any = partial(_default_utilization_scorer, node_availability_summary=cast("Any", None))

CLUSTER_FIELDS = {
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": dict,
    "headGroupSpec": dict,
    "workerGroupSpecs": list,
}
AUTOSCALER_FIELDS = {"upscalingMode": str, "idleTimeoutSeconds": int}
HEAD_FIELDS = {"serviceType": str, "rayStartParams": dict, "template": dict}
WORKER_FIELDS = {
    "groupName": str,
    "minReplicas": int,
    "maxReplicas": int,
    "replicas": int,
    "rayStartParams": dict,
    "template": dict,
}


def objects(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DIRECTORY / name).read_text()))


def check_cluster(cluster: Mapping[str, Any]) -> None:
    """Refuse a RayCluster with other fields than those above, and pods that Kubernetes would refuse."""
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    check_fields(spec, CLUSTER_FIELDS)
    check_fields(spec["autoscalerOptions"], AUTOSCALER_FIELDS)
    assert spec["autoscalerOptions"]["upscalingMode"] in ("Default", "Aggressive", "Conservative")
    check_fields(spec["headGroupSpec"], HEAD_FIELDS)
    for group in spec["workerGroupSpecs"]:
        check_fields(group, WORKER_FIELDS)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in groups(cluster):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        check_pod(group["template"])


def check_fields(found: Mapping[str, Any], fields: Mapping[str, type]) -> None:
    assert {name: type(value) for name, value in found.items()} == dict(fields)


def check_pod(template: Mapping[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **template}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def groups(cluster: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


@pytest.fixture
def cluster() -> Any:
    [found] = objects("cluster.yaml")
    return found


@pytest.fixture
def host() -> Mapping[str, Any]:
    """Kind → the object of that kind."""
    return {each["kind"]: each for each in objects("host.yaml")}


@pytest.fixture
def flags(host: Mapping[str, Any]) -> Sequence[str]:
    """Those of the host."""
    container = host["StatefulSet"]["spec"]["template"]["spec"]["containers"][1]
    assert container["command"][:2] == ["halimede", "host"]
    return [*container["command"][2:], *container["args"]]


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap", "Service", "StatefulSet", "PersistentVolumeClaim"])
def test_objects_of_the_host_are_what_kubernetes_takes(host: Mapping[str, Any], kind: str) -> None:
    assert len(host) == 5
    kubernetes_validate.validate(host[kind], KUBERNETES, strict=True)
    host[kind]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(host[kind], KUBERNETES, strict=True)


def test_the_cluster_has_fields_of_a_ray_cluster_and_pods_that_kubernetes_takes(cluster: Any) -> None:
    check_cluster(cluster)
    cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        check_cluster(cluster)


def test_rays_autoscaler_adds_workers_for_instances_of_each_type(
    cluster: Any, host: Mapping[str, Any], flags: Sequence[str], tmp_path: Path
) -> None:
    cluster["metadata"]["namespace"] = "default"
    config = _derive_autoscaling_config_from_ray_cr(cluster)
    assert config["idle_timeout_minutes"] == 5
    nodes = config["available_node_types"]
    assert nodes["headgroup"]["resources"]["CPU"] == 0

    catalogue = tmp_path / "types.toml"
    catalogue.write_text(host["ConfigMap"]["data"]["types.toml"])
    types = read_catalogue(catalogue)
    [share] = [float(flag.partition("=")[2]) for flag in flags if flag.startswith("--oversubscription=")]

    def added(name: str, count: int) -> dict[str, int]:
        of = types[name]
        bundle: Any = Shape(of.cpus / share, of.reserved_bytes, of.gpus).bundle()
        found, residual = get_nodes_for(nodes, {}, "headgroup", 14, [bundle] * count, SCORER)
        assert residual == []
        return dict(found)

    assert added("ml.cluster.small", 8) == {"cpu": 1}
    assert added("ml.cluster.small", 9) == {"cpu": 2}
    assert added("ml.cluster.gpu", 3) == {"gpu": 3}


def test_the_host_is_started_with_flags_that_it_has(flags: Sequence[str], host: Mapping[str, Any]) -> None:
    parsed = command.make_context("host", list(flags)).params
    [port] = host["Service"]["spec"]["ports"]
    assert parsed["port"] == port["port"]
    assert parsed["advertise_address"] == host["Service"]["metadata"]["name"]
    assert parsed["substrate"] == "ray"


def test_names_of_one_manifest_are_those_of_the_others(
    cluster: Any, host: Mapping[str, Any], flags: Sequence[str]
) -> None:
    parsed = command.make_context("host", list(flags)).params
    pod = host["StatefulSet"]["spec"]["template"]
    node, of_host = pod["spec"]["containers"]
    head = f"{cluster['metadata']['name']}-head-svc:6379"  # as KubeRay names the head's service
    assert parsed["ray_address"] == head
    assert f"--address={head}" in node["args"]
    assert host["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    assert of_host["envFrom"] == [{"secretRef": {"name": host["Secret"]["metadata"]["name"]}}]
    claims = {each.get("persistentVolumeClaim", {}).get("claimName") for each in pod["spec"]["volumes"]}
    assert host["PersistentVolumeClaim"]["metadata"]["name"] in claims
    mounts = {each["mountPath"] for each in of_host["volumeMounts"]}
    assert {str(parsed["directory"]), str(parsed["catalogue"].parent)} <= mounts
    # Ray's files and shared memory are those of both containers
    shared = [each for each in of_host["volumeMounts"] if each in node["volumeMounts"]]
    assert {each["mountPath"] for each in shared} == {"/tmp/ray", "/dev/shm"}

    for group in cluster["spec"]["workerGroupSpecs"]:
        [worker] = group["template"]["spec"]["containers"]
        assert {"name": "RAY_worker_niceness", "value": "0"} in worker["env"]
        assert [each["mountPath"] for each in worker["volumeMounts"]] == [str(parsed["node_directory"])]
        [volume] = group["template"]["spec"]["volumes"]
        assert parsed["node_disk_gib"] < int(volume["emptyDir"]["sizeLimit"].removesuffix("Gi"))


def test_all_pods_have_one_image_with_the_rays_version_of_the_cluster(
    cluster: Any, host: Mapping[str, Any]
) -> None:
    pods = [host["StatefulSet"]["spec"]["template"], *(group["template"] for group in groups(cluster))]
    images = {each["image"] for pod in pods for each in pod["spec"]["containers"]}
    built = (DIRECTORY / "Dockerfile").read_text()
    assert images == set(re.findall(r"--tag (\S+)", built))
    version = cluster["spec"]["rayVersion"]
    assert f"FROM rayproject/ray:{version}-py311\n" in built
    assert f'"ray[default]=={version}"' in built
