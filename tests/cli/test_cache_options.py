from pathlib import Path

import click
import pytest

from halimede.cli.cache_options import read_cache_config, without_password
from halimede.cli.check.checks import cache_settings, check_cache
from halimede.cli.options import ServeOptions
from halimede.cli.process import options_table
from halimede.engine.settings import LocalCacheSettings, RedisCacheSettings
from tests.support.commands import call_text_command
from tests.support.redis_server import redis_server
from tests.support.server import run_command

ADDRESS = (
    "Must at a minimum specify 'host' and 'port' in the configuration. Write --cache-config=redis,host=HOST,port=PORT, "
    "or host=/PATH/OF/SOCKET"
)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITONCACHE_REDIS_USERNAME", raising=False)
    monkeypatch.delenv("TRITONCACHE_REDIS_PASSWORD", raising=False)


def refusal(*entries: str) -> str:
    with pytest.raises(ValueError, match="--cache-config") as caught:
        read_cache_config(entries)
    return str(caught.value)


def test_without_the_flag_there_is_no_cache() -> None:
    assert read_cache_config([]) is None
    assert cache_settings(ServeOptions()) is None


@pytest.mark.parametrize(("text", "size"), [("1048576", 1 << 20), ("1GiB", 1 << 30), ("500MB", 500_000_000)])
def test_a_local_cache_has_a_size(text: str, size: int) -> None:
    assert read_cache_config([f"local,size={text}"]) == LocalCacheSettings(size)


def test_the_last_size_counts() -> None:
    assert read_cache_config(["local,size=1000", "local,size=2000"]) == LocalCacheSettings(2000)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            "local",
            "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got local",
        ),
        (
            "size=3",
            "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got size=3",
        ),
        (
            ",size=3",
            "No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got ,size=3",
        ),
        ("local,size", "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size"),
        ("local,size=", "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,size="),
        ("local,=3", "--cache-config option format is '<cache name>,<setting>=<value>'. Got local,=3"),
    ],
)
def test_what_is_not_of_the_right_form_is_refused_in_tritonservers_words(entry: str, text: str) -> None:
    assert refusal(entry) == text


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ("local,foo=1", "Failed to initialize LocalCache: config didn't contain a valid 'size' field. Write"),
        ("local,size=1,foo=2", "--cache-config=local: there is no setting of that name; there are size"),
        ("local,size=0", "--cache-config=local,size: '0' leaves no memory"),
        ("local,size=abc", "--cache-config=local,size: 'abc' is not a budget"),
        ("local,size=-5", "--cache-config=local,size: '-5' is not a budget"),
        ("lokal,size=5", "there are local and redis; did you mean local?"),
        ("redis,host=h", f"Failed to initialize RedisCache, didn't specify address. {ADDRESS}"),
        ("redis,port=6379", f"Failed to initialize RedisCache, didn't specify address. {ADDRESS}"),
        ("redis,host=h,port=x", f"--cache-config=redis,port: 'x' is not a whole number. {ADDRESS}"),
        ("redis,host=h,port=99999", "--cache-config=redis,port: 99999 is out of range"),
        ("redis,host=h,port=1,socket_timeout=0", "--cache-config=redis,socket_timeout: 0 is out of range"),
        ("redis,host=h,port=1,sni=x", "there are host, port, user, password, db,"),
        ("redis,host=h,port=1,cert=/x", "--cache-config=redis,cert has no effect without tls_enabled=true"),
        ("redis,host=h,port=1,tls_enabled=true,cert=/x", "--cache-config=redis,cert: '/x' is not a file"),
        ("redis,host=/x,tls_enabled=true", "a Unix socket takes no TLS"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would_be_right(entry: str, part: str) -> None:
    assert part in refusal(entry)


def test_only_one_cache_is_possible() -> None:
    text = refusal("local,size=1000", "redis,host=h")
    assert "found multiple cache configurations, but only a single cache is currently supported" in text


def test_settings_of_redis_come_in_one_value_or_in_several() -> None:
    expected = RedisCacheSettings("h", 6379, db=2, timeout_ms=20, connect_timeout_ms=30, pool_size=4)
    rest = "db=2,socket_timeout=20,connect_timeout=30,pool_size=4"
    assert read_cache_config([f"redis,host=h,port=6379,{rest}"]) == expected
    assert read_cache_config([f"redis,{each}" for each in f"host=h,port=6379,{rest}".split(",")]) == expected
    assert read_cache_config(["redis,host=/run/redis.sock"]) == RedisCacheSettings("/run/redis.sock", 0)


def test_credentials_come_from_the_environment_a_file_or_the_flag(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITONCACHE_REDIS_USERNAME", "u1")
    monkeypatch.setenv("TRITONCACHE_REDIS_PASSWORD", "p1")
    monkeypatch.setenv("OTHER", "p3")
    (tmp_path / "secret").write_text("p2\n")
    base = "redis,host=h,port=1"
    passwords = []
    for entry in (
        base,
        f"{base},password=file:{tmp_path}/secret",
        f"{base},password=env:OTHER",
        f"{base},password=p4",
    ):
        settings = read_cache_config([entry])
        assert isinstance(settings, RedisCacheSettings)
        assert settings.user == "u1"
        passwords.append(settings.password)
    assert passwords == ["p1", "p2", "p3", "p4"]


def test_a_password_is_never_shown() -> None:
    assert without_password("redis,host=h,password=a,b=c") == "redis,host=h,password=***"
    assert without_password("redis,password=s,host=h") == "redis,password=***,host=h"
    assert without_password("redis,password=file:/x,port=1") == "redis,password=file:/x,port=1"
    assert "hush" not in refusal("redis,host=h,port=1,password=hush,hush2")
    assert "hush" not in refusal("redis,host=h,port=1,password=a,hush=1")
    settings = read_cache_config(["redis,host=h,port=1,password=hush"])
    assert "hush" not in repr(settings)
    assert "hush" not in options_table(ServeOptions(cache_config=("redis,host=h,port=1,password=hush",)))


def test_the_deprecated_flag_makes_a_local_cache_and_excludes_the_other() -> None:
    assert cache_settings(ServeOptions(response_cache_byte_size=5000)) == LocalCacheSettings(5000)
    both = ServeOptions(response_cache_byte_size=5000, cache_config=("local,size=5000",))
    with pytest.raises(click.UsageError) as caught:
        check_cache(both)
    assert str(caught.value) == (
        "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or "
        "the other."
    )


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("", "invalid username-password pair or user is disabled"),
        (",user=nobody", "invalid username-password pair or user is disabled"),
    ],
)
def test_a_redis_that_refuses_the_password_or_the_user_ends_the_start(
    tmp_path: Path, user: str, reason: str
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    with redis_server(tmp_path, "--requirepass", "right-one") as server:
        cache = f"--cache-config={server.settings},password=wrong-one{user}"
        ended = run_command(
            "serve",
            f"--model-repository={models}",
            "--exit-on-error=false",
            "--http-port=0",
            "--grpc-port=0",
            "--metrics-port=0",
            cache,
        )
    assert ended.returncode == 2
    assert f"Failed to initialize RedisCache: {reason}" in ended.stderr
    assert "wrong-one" not in ended.stderr + ended.stdout


def test_a_wrong_value_ends_the_server_with_2(tmp_path: Path) -> None:
    ended = call_text_command("serve", f"--model-repository={tmp_path}", "--cache-config=local,size=many")
    assert ended.returncode == 2
    assert "--cache-config=local,size: 'many' is not a budget" in ended.stderr
