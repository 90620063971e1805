"""What the `requirements.txt` of an archive may say."""

from pathlib import Path

import pytest

from halimede.backends.base import BackendOptions
from halimede.core.errors import InternalError
from halimede.workers.environments import Environments
from halimede.workers.requirement_files import check_requirements
from tests.workers.environment_models import model


def check(directory: Path, text: str | bytes) -> None:
    """Check a file of a model's version."""
    version = directory / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    path = version / "requirements.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    check_requirements("m", path, directory / "m")


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy==1.26.4",
        "numpy >= 1.26, < 3  # a comment",
        "scikit-learn ~= 1.5 ; python_version < '3.13'",
        'torch (>=2.1,!=2.2.*) ; sys_platform == "linux" and python_version >= "3.11"',
        "transformers[torch, sentencepiece]==4.40.0",
        "a===1.0+cpu",
        "ruamel.yaml",
        "six==1.16.0 --hash=sha256:1e61c37477a1626458e36f7b1d82aa5c9b094fa4802892072e49de9c60c4c926 --hash=sha256:00ff",
        "six \\\n  ==1.16.0 \\\n  --hash=sha256:00ff",
        "--pre",
        "--prefer-binary",
        "--require-hashes",
        "--no-index",
        "--only-binary=:all:",
        "--no-binary six",
        "wheels/six-1.16.0-py2.py3-none-any.whl",
        "./own",
        "../shared/own.tar.gz",
        "six.whl[extra] ; python_version > '3'",
        "-r more.txt",
        "-rmore.txt",
        "--constraint=more.txt",
        "-c ../more.txt",
        "",
        "   # nothing",
        "# -*- coding: utf-8 -*-\nnumpy",
        "\ufeffnumpy",
    ],
)
def test_packages_and_files_of_the_model_are_allowed(tmp_path: Path, line: str) -> None:
    for place in (tmp_path / "m", tmp_path / "m" / "1"):
        place.mkdir(exist_ok=True)
        (place / "more.txt").write_text("six\n")
    check(tmp_path, line)
    with pytest.raises(InternalError, match="is refused"):
        check(tmp_path, f"{line}\n-i https://evil.example/simple")


INDEX = "the file must not say where packages come from; set PIP_INDEX_URL"
URL = "URLs are not allowed; put the file into the model's directory"
OUTSIDE = "paths must stay inside the model's directory"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--index-url https://evil.example/simple", INDEX),
        ("--index-url=https://evil.example/simple", INDEX),
        ("-i https://evil.example/simple", INDEX),
        ("-ihttps://evil.example/simple", "is refused"),
        ("--extra-index-url https://evil.example/simple", INDEX),
        ("--extra-index https://evil.example/simple", "is refused"),
        ("--find-links https://evil.example/", INDEX),
        ("-f /tmp/wheels", INDEX),
        ("-f/tmp/wheels", "is refused"),
        ("-f./wheels", "is refused"),
        ("-i/srv/simple", "is refused"),
        ("--find-links=./wheels", INDEX),
        ("-r-i/srv/simple", "is refused"),
        ("--trusted-host evil.example", INDEX),
        ("-e .", "editable installs are not allowed; name the directory without -e"),
        ("-e git+https://evil.example/x.git#egg=x", "editable installs are not allowed"),
        ("--editable=./x", "editable installs"),
        ("git+https://evil.example/x.git", URL),
        ("x @ git+ssh://git@evil.example/x.git", URL),
        ("x@https://evil.example/x.whl", URL),
        ("x @ file:///etc/x.whl", URL),
        ("file:x.whl", URL),
        ("https://evil.example/x.tar.gz", URL),
        ("x.whl @ https://evil.example/x.tar.gz", URL),
        ("/srv/x.whl", OUTSIDE),
        ("../../other/x.whl", OUTSIDE),
        ("./a/../../../../x", OUTSIDE),
        ("-r ../../other.txt", OUTSIDE),
        ("-r /etc/passwd", OUTSIDE),
        ("-r https://evil.example/more.txt", URL),
        ("~/x.whl", OUTSIDE),
        ("x==${SECRET}", "variables of the environment are not allowed"),
        ("-r ${HOME}/more.txt", "variables of the environment"),
        ("x --config-settings=a=b", "is refused"),
        ("x --global-option=a", "is refused"),
        ("x -i https://evil.example/simple", URL),
        ("--use-feature=fast-deps", "this option is not allowed; allowed are -r, -c, --hash"),
        ("--pre --index-url https://evil.example", URL),
        ("-r more.txt -i https://evil.example", URL),
        ("x\\\n -i\\\n https://evil.example", URL),
        ("# a comment \\\n-i https://evil.example", INDEX),
        ("numpy\x0c-i https://evil.example", INDEX),
        ("x y", "it is neither the name of a package nor the path of a file"),
        ("'x'", "it is neither the name of a package"),
        ("# coding: utf-7\n+AC0-i https://evil.example", "the file must be in UTF-8"),
        ("#\n# -*- coding: cp037 -*-", "the file must be in UTF-8"),
        ("numpy".encode("utf-16"), "the file must be in UTF-8"),
        ("numpy".encode("utf-16-le"), "is refused"),
        (b"numpy\xff", "the file must be in UTF-8"),
    ],
)
def test_everything_else_is_refused_with_its_line_and_what_to_do(
    tmp_path: Path, line: str | bytes, why: str
) -> None:
    with pytest.raises(InternalError) as caught:
        check(tmp_path, line)
    text = caught.value.message
    assert text.startswith(f"model 'm': '{tmp_path}/m/1/requirements.txt', line ")
    assert why in text
    assert text.endswith(
        "Whoever runs the server can allow everything with --backend-config=python,requirement-sources=any"
    )


def test_the_line_is_named_also_in_files_that_the_file_names(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "more.txt").write_text(
        "-r requirements.txt\nsix\n\nx @ \\\n  https://evil.example\n"
    )
    with pytest.raises(InternalError) as caught:
        check(tmp_path, "numpy\n-r more.txt\n")
    assert (
        f"'{tmp_path}/m/1/more.txt', line 4: 'x @   https://evil.example' is refused" in caught.value.message
    )


def test_a_link_out_of_the_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("six")
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "more.txt").symlink_to(tmp_path / "other.txt")
    with pytest.raises(InternalError, match=OUTSIDE):
        check(tmp_path, "-r more.txt")


def test_many_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    for number in range(200):
        (tmp_path / "m" / "1" / f"{number}.txt").write_text(f"-r {number + 1}.txt")
    (tmp_path / "m" / "1" / "200.txt").write_text("six")
    with pytest.raises(InternalError, match="names more than 100 other files"):
        check(tmp_path, "-r 0.txt")


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="is larger than 1048576 bytes"):
        check(tmp_path, "six\n" * 300_000)


def test_a_long_line_takes_no_time_and_is_shortened(tmp_path: Path) -> None:
    for line in (
        "a" * 200_000 + "!",
        "a" + ".-" * 100_000,
        "a;" + " (" * 100_000 + "#",
        "a[" + "b," * 100_000,
    ):
        with pytest.raises(InternalError) as caught:
            check(tmp_path, line)
        assert len(caught.value.message) < 1000


def test_a_server_for_archives_refuses_them_before_pip_runs(tmp_path: Path) -> None:
    source = model(tmp_path, "m")
    (source.version_directory / "requirements.txt").write_text("six\n-i https://evil.example/simple\n")
    settings = {"environment-cache-directory": str(tmp_path / "cache"), "requirement-sources": "configured"}
    environments = Environments()
    try:
        with pytest.raises(InternalError, match=r"line 2: '-i https://evil\.example/simple' is refused"):
            environments.prepare(source, BackendOptions(settings))
        (source.version_directory / "requirements.txt").unlink()
        (source.version_directory / "requirements.txt").mkdir()
        assert environments.prepare(source, BackendOptions(settings)) is None
    finally:
        environments.close()
    assert not (tmp_path / "cache").exists()
