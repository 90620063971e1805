"""What runs for an image."""

import re
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.substrates.images import SERVER, ImageRule, ImageRulesError, Images, read_image_rules
from tests.hosting.substrates.instances import write_serve


@pytest.mark.parametrize(
    "image",
    [
        "halimede",
        "halimede:0.1",
        "sagemaker-tritonserver",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/djl-inference:0.31.0-lmi13.0.0-cu124",
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-tgi-inference:2.4.0-tgi3.0.1",
        "sagemaker-tritonserver:24.09-py3",
        "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3",
        "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver@sha256:00ff",
        "nvcr.io/nvidia/tritonserver:24.09-py3",
    ],
)
def test_triton_images_run_this_server(image: str) -> None:
    assert Images().command(image) == (SERVER, True)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_program_is_run_with_serve(tmp_path: Path, prefix: str) -> None:
    program = write_serve(tmp_path)
    assert Images().command(f"{prefix}{program}") == ((str(program), "serve"), False)


def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    for path in (tmp_path / "text", tmp_path / "missing", tmp_path):
        with pytest.raises(ApiError, match="it is missing or not executable"):
            Images().command(str(path))


@pytest.mark.parametrize(
    "image", ["busybox", "tritonserver-x", "a/sagemaker-tritonserver/b", "relative/serve", ""]
)
def test_an_unknown_image_is_refused_with_what_to_do(image: str) -> None:
    with pytest.raises(ApiError, match=r"no rule says what runs for the image.*with --image-rules") as raised:
        Images().command(image)
    assert raised.value.code == "ValidationException"
    with pytest.raises(ApiError, match=r"in /etc/rules\.toml"):
        Images((), Path("/etc/rules.toml")).command(image)


def test_rules_come_first_and_in_their_order() -> None:
    rules = [ImageRule(re.compile("halimede"), ("/a", "-x")), ImageRule(re.compile(".*"), ("/b",))]
    images = Images(rules)
    assert images.command("halimede") == (("/a", "-x", "serve"), False)
    assert images.command("halimede:1") == (("/b", "serve"), False)


def test_rules_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[images]]\npattern = ".*/my:.*"\ncommand = ["/srv/my", "--fast"]\n')
    (rule,) = read_image_rules(path)
    assert Images([rule]).command("x/my:1") == (("/srv/my", "--fast", "serve"), False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "cannot read the image rules"),
        ("", r"have no \[\[images\]\]"),
        ("images = 3", r"have no \[\[images\]\]"),
        ("images = [3]", "rule 1: expected 'pattern' and 'command'"),
        ('[[images]]\npattern = "a"', "rule 1: expected 'pattern' and 'command'"),
        ('[[images]]\npattern = "a"\ncommand = ["b"]\nmore = 1', "and nothing else"),
        ('[[images]]\npattern = "a"\ncommand = "b"', "'command' must be a list of texts, got 'b'"),
        ('[[images]]\npattern = "a"\ncommand = []', "'command' must be a list of texts"),
        ('[[images]]\npattern = "a"\ncommand = [1]', "'command' must be a list of texts"),
        ('[[images]]\npattern = "("\ncommand = ["b"]', "'pattern' is no regular expression"),
        ('[[images]]\npattern = 3\ncommand = ["b"]', "'pattern' is no regular expression"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ImageRulesError, match=message) as raised:
        read_image_rules(path)
    assert str(path) in str(raised.value)
