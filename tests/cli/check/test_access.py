from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from halimede.cli.check.access import access_remarks, check_access
from halimede.cli.options import ServeOptions
from halimede.cli.process import options_table

OPEN = ServeOptions(model_repository=("r",), model_control_mode="explicit")


@pytest.mark.parametrize("mode", ["explicit", "ondemand"])
def test_loading_that_is_open_to_a_network_is_warned_of_once(mode: str) -> None:
    (remark,) = access_remarks(replace(OPEN, model_control_mode=mode))
    assert remark == (
        "everyone who reaches HTTP at 0.0.0.0:8000 and gRPC at 0.0.0.0:8001 can load and unload models; close it with "
        "--http-restricted-api=model-repository:HEADER=VALUE --grpc-restricted-protocol=model-repository:KEY=VALUE, "
        "or with --http-address=127.0.0.1 --grpc-address=127.0.0.1"
    )


def test_code_of_everyone_is_warned_of() -> None:
    (remark,) = access_remarks(replace(OPEN, allow_model_code_upload="all"))
    assert "can load models, and code of theirs (--allow-model-code-upload=all); close it" in remark


@pytest.mark.parametrize(
    "changes",
    [
        {"model_control_mode": "none"},
        {"model_control_mode": "poll"},
        {"http_address": "127.0.0.1", "grpc_address": "::1"},
        {"http_address": "localhost", "allow_grpc": False},
        {
            "http_restricted_api": ("inference,model-repository:k=v",),
            "grpc_restricted_protocol": ("model-repository:k=v",),
        },
        {"allow_http": False, "allow_grpc": False, "allow_sagemaker": True},
        {"http_use_ssl_mutual": True, "grpc_use_ssl_mutual": True},
        {"http_use_ssl": True, "grpc_use_ssl": True, "metrics_use_ssl": True, "token_file": "tokens"},
        {"http_address": "127.0.0.1", "allow_grpc": False, "token_file": "tokens"},
    ],
)
def test_what_is_closed_is_not_warned_of(changes: dict[str, Any]) -> None:
    assert access_remarks(replace(OPEN, **changes)) == []


def test_only_what_is_open_is_warned_of() -> None:
    (remark,) = access_remarks(replace(OPEN, http_address="127.0.0.1"))
    assert remark.startswith("everyone who reaches gRPC at 0.0.0.0:8001 can")
    assert "--http" not in remark


def test_loading_without_a_token_is_warned_of() -> None:
    options = replace(OPEN, token_file="tokens", token_apis="inference", http_use_ssl=True, grpc_use_ssl=True)
    (remark,) = access_remarks(options)
    assert remark.startswith("everyone who reaches HTTP at 0.0.0.0:8000 and gRPC at 0.0.0.0:8001 can load")


def test_tokens_that_cross_a_network_unencrypted_are_warned_of() -> None:
    options = replace(OPEN, token_file="tokens", http_use_ssl=True)
    assert access_remarks(options) == [
        "bearer tokens cross the network unencrypted; use --grpc-use-ssl and --metrics-use-ssl"
    ]
    options = replace(options, grpc_use_ssl=True)
    for closed in (
        replace(options, metrics_use_ssl=True),
        replace(options, metrics_address="127.0.0.1"),
        replace(options, token_apis="inference,model-repository"),
        replace(options, allow_metrics=False),
    ):
        assert access_remarks(closed) == []


def test_tokens_to_platforms_ports_are_warned_of_with_what_to_do() -> None:
    options = replace(
        OPEN, token_file="tokens", allow_http=False, allow_grpc=False, allow_metrics=False,
        allow_sagemaker=True, allow_vertex_ai=True, vertex_ai_address="127.0.0.1",
    )  # fmt: skip
    assert access_remarks(options) == [
        "bearer tokens cross the network unencrypted; use --sagemaker-address=127.0.0.1 behind a proxy with TLS"
    ]
    assert access_remarks(replace(options, sagemaker_address="::1")) == []
    (remark,) = access_remarks(replace(options, vertex_ai_address="0.0.0.0", allow_grpc=True))
    assert remark.endswith(
        "use --grpc-use-ssl, --sagemaker-address=127.0.0.1 behind a proxy with TLS and "
        "--vertex-ai-address=127.0.0.1 behind a proxy with TLS"
    )


def test_certificates_without_the_flag_that_uses_them_are_warned_of() -> None:
    closed = replace(OPEN, model_control_mode="none")
    assert access_remarks(replace(closed, http_server_cert="a.crt", grpc_server_key="a.key")) == [
        "--http-server-cert has no effect without --http-use-ssl: HTTP is not encrypted",
        "--grpc-server-key has no effect without --grpc-use-ssl: gRPC is not encrypted",
    ]
    roots = replace(closed, grpc_use_ssl=True, grpc_root_cert="root.crt", http_root_cert="root.crt")
    assert access_remarks(roots) == [
        "--http-root-cert has no effect without --http-use-ssl-mutual: clients need no certificate",
        "--grpc-root-cert has no effect without --grpc-use-ssl-mutual: clients need no certificate",
    ]
    used = {"server_cert": "a.crt", "server_key": "a.key", "root_cert": "root.crt", "use_ssl_mutual": True}
    grpc: dict[str, Any] = {f"grpc_{name}": value for name, value in used.items()}
    assert access_remarks(replace(closed, **grpc)) == []
    assert access_remarks(replace(closed, allow_http=False, http_server_cert="a.crt")) == []


def refusal(**options: Any) -> str:
    with pytest.raises(click.UsageError) as refused:
        check_access(replace(OPEN, **options))
    return refused.value.message


def test_tokens_are_checked_before_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    assert refusal(token_apis="inference") == "--token-apis needs --token-file"
    assert refusal(token_file=str(file)) == f"--token-file: cannot read '{file}': No such file or directory"
    file.write_text("s3cr3t\n")
    assert refusal(token_file=str(file)) == (
        f"--token-file: '{file}', line 1 is not NAME:sha256:HASH; make one with: halimede token NAME"
    )
    file.write_text("")
    check_access(replace(OPEN, token_file=str(file), token_apis="inference,metrics"))
    assert refusal(token_file=str(file), token_apis="infer").startswith(
        "--token-apis: 'infer' is no group of calls; known are health, "
    )


def test_the_table_of_options_shows_no_secret() -> None:
    options = replace(
        OPEN,
        http_restricted_api=("inference:key=s3cr3t", "health:key=env:KEY"),
        grpc_restricted_protocol=("inference:key=s3cr3t",),
    )
    table = options_table(options)
    assert "s3cr3t" not in table
    assert "| inference:key=***, health:key=env:KEY |" in table


def test_vertex_ai_is_warned_of_with_the_flags_that_close_it() -> None:
    (remark,) = access_remarks(replace(OPEN, allow_vertex_ai=True, allow_grpc=False))
    assert remark == (
        "everyone who reaches HTTP at 0.0.0.0:8000 and Vertex AI at 0.0.0.0:8080 can load and unload models; close it "
        "with --http-restricted-api=model-repository:HEADER=VALUE, or with --http-address=127.0.0.1 "
        "--vertex-ai-address=127.0.0.1"
    )
