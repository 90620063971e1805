"""Java's patterns, as AWS's models have them."""

import time

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel

from halimede.hosting.api.patterns import compile_pattern

SERVICES = ("sagemaker", "sagemaker-runtime", "cloudwatch", "logs", "sts", "application-autoscaling")


def matches(pattern: str, value: str) -> bool:
    return compile_pattern(pattern).fullmatch(value) is not None


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"([\p{L}\p{Z}\p{N}_.:/=+\-@]*)", "Größe 日本 ٣ a@b", "a!"),
        (r"\p{ASCII}*", "a b\n~", "ä"),
        (r"[\p{ASCII}]*", "a b\n~", "ä"),
        (r"\A\S[\p{Print}]*\z", "model a.tar.gz", "a\n"),
        (r"\A\S[\p{Print}]*\z", "ä", "aä"),
        (r"\p{Print}+", "my policy", "a\tb"),
        (r"arn:[\p{Alnum}\-]+:x", "arn:aws-cn:x", "arn:aws_cn:x"),
        (r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\r\n\t]*", "a\t日😀", "\x01"),
        (r"^\d{12}$", "123456789012", "١٢٣٤٥٦٧٨٩٠١٢"),
        (r"[\w#+=/:,.@-]*", "log_group:a", "grün"),
        (r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", "a--b", "a-"),
        (r"[\S\s]*", "any\nthing ä", None),
        (r"(?!\s*$).+", " a", "  "),
        (r".*", "one line", "two\nlines"),
    ],
)
def test_values_match_as_java_has_it(pattern: str, right: str, wrong: str | None) -> None:
    assert matches(pattern, right)
    assert wrong is None or not matches(pattern, wrong)


def test_a_line_end_after_the_value_does_not_match() -> None:
    assert not matches(r"^\d{12}$", "123456789012\n")


@pytest.mark.parametrize("service", SERVICES)
def test_every_pattern_of_the_services_compiles(service: str) -> None:
    model = ServiceModel(Loader().load_service_model(service, "service-2"), service)
    patterns = {model.shape_for(name).metadata.get("pattern") for name in model.shape_names}
    patterns -= {None, r"[\u0009\u000A\u000D\u0020-\u007E\u0085\u00A0-\uD7FF\uE000-\uFFFD\u10000-\u10FFFF]+"}
    assert all(compile_pattern(pattern) for pattern in patterns)


@pytest.mark.parametrize("piece", ["a", "a-", "-", "a.", "arn:aws", "/", " ", "1", "s3://a/"])
def test_no_pattern_of_an_operation_takes_long_on_hostile_values(piece: str) -> None:
    model = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    operations = ("CreateModel", "CreateEndpointConfig", "CreateEndpoint", "UpdateEndpoint", "AddTags")
    seen: set[str] = set()
    pending = [model.operation_model(name).input_shape for name in operations]
    while pending:
        shape = pending.pop()
        if shape.name in seen:
            continue
        seen.add(shape.name)
        if shape.type_name == "structure":
            pending += shape.members.values()
        elif shape.type_name == "list":
            pending.append(shape.member)
        elif shape.type_name == "map":
            pending += [shape.key, shape.value]
        elif shape.type_name == "string" and "pattern" in shape.metadata:
            size = min(shape.metadata.get("max", 4096), 4096)
            value = (piece * size)[: size - 1] + "!"
            begin = time.thread_time()
            compile_pattern(shape.metadata["pattern"]).fullmatch(value)
            assert time.thread_time() - begin < 0.1, (shape.name, shape.metadata["pattern"])
