from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from headgate.errors import InvalidSettings
from headgate.setting_values import LogLevel
from headgate.settings import Settings, from_environment, unknown_variables, with_options


def test_an_empty_environment_gives_the_defaults() -> None:
    """Without variables the service is this machine's, on port 8080; where counters are kept depends on the rest."""
    settings = from_environment({})
    assert settings == Settings()
    assert (settings.host, settings.port, settings.redis_url) == ("127.0.0.1", 8080, None)
    assert (settings.rules_file, settings.data_dir) == (None, Path(".headgate"))


def test_variables_are_read_by_their_type() -> None:
    """Each variable arrives as the type of its setting, blanks around it removed."""
    settings = from_environment(
        {
            "HEADGATE_REDIS_URL": "memory://?max_counters=10",
            "HEADGATE_DATA_DIR": "/var/lib/headgate",
            "HEADGATE_RULES_FILE": "rules.yaml",
            "HEADGATE_HOST": "0.0.0.0",  # noqa: S104 (a value like any other)
            "HEADGATE_PORT": " 0 ",
            "HEADGATE_WORKERS": "256",
            "HEADGATE_LOG_LEVEL": "Warning",
            "HEADGATE_BODY_LIMIT": "1",
            "HEADGATE_BODY_SECONDS": "0.5",
            "HEADGATE_NOTICE_SECONDS": "0",
            "HEADGATE_DRAIN_SECONDS": "1e2",
            "HEADGATE_URL": "https://limits.example.com:8443/gate/",
            "HOME": "/root",
        }
    )
    assert settings == Settings(
        redis_url="memory://?max_counters=10",
        data_dir=Path("/var/lib/headgate"),
        rules_file=Path("rules.yaml"),
        host="0.0.0.0",  # noqa: S104 (as above)
        port=0,
        workers=256,
        log_level=LogLevel.WARNING,
        body_limit=1,
        body_seconds=0.5,
        notice_seconds=0.0,
        drain_seconds=100.0,
        url="https://limits.example.com:8443/gate",
    )


@pytest.mark.parametrize(
    ("name", "text", "write"),
    [
        ("PORT", "http", "a whole number from 0 to 65535"),
        ("PORT", "65536", "a whole number from 0 to 65535"),
        ("PORT", "-1", "a whole number from 0 to 65535"),
        ("PORT", "8080.0", "a whole number from 0 to 65535"),
        ("PORT", "٨٠٨٠", "a whole number from 0 to 65535"),
        ("PORT", "9" * 5_000, "a whole number from 0 to 65535"),
        ("WORKERS", "0", "a whole number from 1 to 256"),
        ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("BODY_LIMIT", "64k", "a whole number from 1 to 16777216"),
        ("BODY_SECONDS", "soon", "a number of seconds from 0 to 600"),
        ("DRAIN_SECONDS", "nan", "a number of seconds from 0 to 600"),
        ("DRAIN_SECONDS", "inf", "a number of seconds from 0 to 600"),
        ("NOTICE_SECONDS", "-1", "a number of seconds from 0 to 600"),
        ("RULES_OWNER", "x" * 256, "up to 255 printable characters"),
        ("RULES_OWNER", "a\tb", "up to 255 printable characters"),
        ("URL", "localhost:8080", "an address such as http://127.0.0.1:8080"),
        ("URL", "http://", "an address such as http://127.0.0.1:8080"),
        ("URL", "http://localhost:port", "an address such as http://127.0.0.1:8080"),
        ("URL", "http://[::1", "an address such as http://127.0.0.1:8080"),
        ("URL", "http://localhost/?x", "an address such as http://127.0.0.1:8080"),
        ("REGION", "e" * 65, "up to 64 printable characters"),
        ("REGION", "\u202eeu", "up to 64 printable characters"),
        ("JWT_ALGORITHMS", ",", "names separated by commas"),
        ("METRICS_USERS", ", ,", "names separated by commas"),
        ("TRUSTED_PROXIES", ",", "addresses and networks separated by commas, as in 10.0.0.0/8, 192.0.2.7"),
        ("TRUSTED_PROXIES", "fe80::1%eth0", "addresses and networks separated by commas, as in 10.0.0.0/8, 192.0.2.7"),
        ("TRUSTED_PROXIES", "::ffff:0:0/96", "addresses and networks separated by commas, as in 10.0.0.0/8, 192.0.2.7"),
        ("TRUSTED_PROXIES", "64:ff9b::/96", "addresses and networks separated by commas, as in 10.0.0.0/8, 192.0.2.7"),
    ],
)
def test_a_malformed_variable_is_named_with_what_to_write(name: str, text: str, write: str) -> None:
    """A malformed value raises one sentence with the variable, the value and what would be right."""
    with pytest.raises(InvalidSettings) as refused:
        from_environment({f"HEADGATE_{name}": text})
    sentence = str(refused.value)
    assert sentence.startswith(f"HEADGATE_{name} is ")
    assert sentence.endswith(f"; write {write}")
    assert len(sentence) < 300


def test_an_empty_variable_is_the_same_as_none() -> None:
    """Variables that are there and empty, as composed environments have them, change nothing."""
    assert (
        from_environment({"HEADGATE_PORT": "", "HEADGATE_REDIS_URL": " ", "HEADGATE_REDIS_URL_FILE": ""}) == Settings()
    )


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    """A variable with _FILE names the file that holds a secret; the line's end is not part of it."""
    secret = tmp_path / "redis-url"
    secret.write_text("memory://?when_full=deny\n")
    assert from_environment({"HEADGATE_REDIS_URL_FILE": str(secret)}).redis_url == "memory://?when_full=deny"


def test_a_secret_has_one_source(tmp_path: Path) -> None:
    """A secret given twice, or in a file that cannot be read, is refused without showing it."""
    both = {"HEADGATE_REDIS_URL": "redis://:hush@host", "HEADGATE_REDIS_URL_FILE": "/run/secrets/url"}
    with pytest.raises(InvalidSettings, match="both set; keep one of them") as refused:
        from_environment(both)
    assert "hush" not in str(refused.value)
    with pytest.raises(InvalidSettings, match=r"HEADGATE_REDIS_URL_FILE names .* cannot be read: No such file"):
        from_environment({"HEADGATE_REDIS_URL_FILE": str(tmp_path / "none")})
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSettings, match="it is not UTF-8 text"):
        from_environment({"HEADGATE_REDIS_URL_FILE": str(binary)})


def test_an_empty_file_is_no_secret(tmp_path: Path) -> None:
    """A file without contents, as a secret that was not filled in, is refused: without it all may call the service."""
    empty = tmp_path / "token"
    empty.write_text("\n")
    for name in ("SERVICE_TOKEN", "ADMIN_TOKEN", "REDIS_URL", "JWT_KEY"):
        with pytest.raises(InvalidSettings, match=f"HEADGATE_{name}_FILE names .*, which is empty; write"):
            from_environment({f"HEADGATE_{name}_FILE": str(empty)})


@pytest.mark.parametrize("name", ["URL", "ADMIN_URL", "S3_ENDPOINT"])
def test_addresses_that_messages_say_have_no_password(name: str) -> None:
    """An address with a password is refused, without showing it; that of a collector may have one."""
    with pytest.raises(InvalidSettings) as refused:
        from_environment({f"HEADGATE_{name}": "http://ann:hush@127.0.0.1:8080"})
    assert str(refused.value) == (
        f"HEADGATE_{name} is malformed; write an address without user and password, such as http://127.0.0.1:8080"
    )
    collector = "http://ann:hush@127.0.0.1:4318"
    assert from_environment({"HEADGATE_OTEL_ENDPOINT": collector}).otel_endpoint == collector


def test_rules_file_is_a_setting_and_not_a_secret_in_a_file() -> None:
    """HEADGATE_RULES_FILE means itself, and HEADGATE_PORT_FILE means nothing."""
    assert unknown_variables({"HEADGATE_RULES_FILE": "x", "HEADGATE_REDIS_URL_FILE": "y"}) == []
    assert len(unknown_variables({"HEADGATE_PORT_FILE": "x"})) == 1


def test_an_unknown_variable_gets_a_sentence_with_what_it_resembles() -> None:
    """A misspelt variable is named with the setting it resembles; one unlike any is only named."""
    sentences = unknown_variables({"HEADGATE_RULE_FILE": "x", "HEADGATE_9": "y", "PATH": "/bin"})
    assert sentences == [
        "HEADGATE_9 is not a setting and is ignored",
        "HEADGATE_RULE_FILE is not a setting and is ignored; did you mean HEADGATE_RULES_FILE?",
    ]


def test_options_stand_above_the_environment() -> None:
    """An option replaces its setting and is named in what is wrong with it; one not given changes nothing."""
    settings = from_environment({"HEADGATE_PORT": "1", "HEADGATE_HOST": "::1"})
    assert with_options(settings, {"port": "2", "host": None}) == Settings(port=2, host="::1")
    with pytest.raises(InvalidSettings, match="--port is 'x'; write a whole number"):
        with_options(settings, {"port": "x"})


def test_the_environment_of_this_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping the process's own variables are read."""
    monkeypatch.setenv("HEADGATE_PORT", "8099")
    monkeypatch.setenv("HEADGATE_PORTS", "8099")
    assert from_environment().port == 8099
    assert any(sentence.startswith("HEADGATE_PORTS ") for sentence in unknown_variables())


def test_every_setting_says_what_it_means() -> None:
    """Each setting carries a meaning for people."""
    assert all(each.metadata["meaning"] for each in fields(Settings))
