"""`headgate doctor` and planted faults of settings, packages, ports, files, peers and rules."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.authority import Authority
from tests.support.doctor import IN_MEMORY, found
from tests.support.valkey import free_port

from headgate.cli.commands import run
from headgate.cli.diagnosis.catalog import KINDS, Report
from headgate.cli.diagnosis.rule_checks import check_rules
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = str(Path(__file__).parents[2] / "examples" / "rules.yaml")
TOKEN = "0123456789abcdef" * 2
EVERYWHERE = "0.0.0.0"  # noqa: S104 (nothing listens)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings with which nothing is wrong: a rules file, and counters in memory."""
    monkeypatch.chdir(tmp_path)
    return IN_MEMORY | {"rules_file": EXAMPLES}


@contextmanager
def listening() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_nothing_is_found_without_a_fault(base: dict[str, str]) -> None:
    """The settings that the others are made from are well."""
    assert found(**base) == {}


SETTINGS = {
    "setting-malformed": ({"port": "eighty", "workers": "0"}, "HEADGATE_PORT is 'eighty'; write a whole number"),
    "setting-unknown": ({"rules_fil": "x"}, "did you mean HEADGATE_RULES_FILE?"),
    "setting-refused": ({"jwt_issuer": "https://issuer.example"}, "HEADGATE_JWT_ISSUER has no effect"),
    "setting-without-effect": ({"overload_seconds": "2"}, "HEADGATE_OVERLOAD_SECONDS has no effect"),
    "workers-on-memory": ({"workers": "4"}, "4 workers on memory://"),
    "token-weak": ({"service_token": "secret"}, "HEADGATE_SERVICE_TOKEN has 6 characters"),
    "tls-unusable": ({"tls_cert": EXAMPLES}, "HEADGATE_TLS_CERT and HEADGATE_TLS_KEY go together"),
    "jwt-unusable": ({"jwt_algorithms": "RS256"}, "needs either HEADGATE_JWT_KEY or HEADGATE_JWT_JWKS_URL"),
    "open-to-network": ({"host": EVERYWHERE, "trusted_proxies": "10.0.0.1"}, "HEADGATE_HOST is 0.0.0.0"),
    "proxies-trust-all": ({"trusted_proxies": "0.0.0.0/0, ::/0"}, "0.0.0.0/0, ::/0"),
    "proxies-none": ({"host": EVERYWHERE, "service_token": TOKEN}, "HEADGATE_TRUSTED_PROXIES is not set"),
    "port-unusable": ({"host": "192.0.2.1", "service_token": TOKEN, "trusted_proxies": "10.0.0.1"}, "no such address"),
    "rules-unreadable": ({"rules_file": "nowhere.yaml"}, "nowhere.yaml: cannot be read"),
    "redis-address": ({"redis_url": "redsi://127.0.0.1"}, "HEADGATE_REDIS_URL is malformed"),
    "redis-down": ({"redis_url": "redis://127.0.0.1:1"}, "127.0.0.1:1: "),
    "embedded-stopped": ({"redis_url": "embedded://"}, "no Valkey listens on"),
    "kafka-unusable": ({"kafka_brokers": "127.0.0.1:1"}, "no broker can be reached: 127.0.0.1:1 (Connection refused)"),
    "traces-unusable": ({"otel_endpoint": "http://127.0.0.1:1"}, "127.0.0.1:1: Connection refused"),
}


@pytest.mark.parametrize("code", SETTINGS)
def test_a_planted_setting_is_found(code: str, base: dict[str, str]) -> None:
    """Each fault, alone, is the only thing that is found, and it is said what it is."""
    planted, words = SETTINGS[code]
    codes = found(**(base | planted))
    assert list(codes) == [code]
    assert words in codes[code]


def test_every_malformed_setting_is_named(base: dict[str, str]) -> None:
    """Not only the first, where the service would stop."""
    said = found(**base, log_level="loud", flush_seconds="soon")["setting-malformed"]
    assert "HEADGATE_LOG_LEVEL" in said
    assert "HEADGATE_FLUSH_SECONDS" in said


def test_an_admin_api_on_a_network_is_found(base: dict[str, str], database_url: str) -> None:
    """Its tokens would travel without encryption."""
    codes = found(**base, database_url=database_url, admin_host=EVERYWHERE)
    assert "admin-open-to-network" in codes


def test_a_missing_package_is_found(base: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(
        sys.modules, "headgate.adapters.kafka.producer", raising=False
    )  # another test may have loaded it
    codes = found(**base, kafka_brokers="127.0.0.1:9092")
    assert list(codes) == ["package-missing"]
    assert "pip install 'headgate[kafka]'" in codes["package-missing"]


def test_a_port_in_use_is_found(base: dict[str, str]) -> None:
    """Another program is not taken for a service of ours."""
    with listening() as port:
        codes = found(**(base | {"grpc_port": str(port)}))
    assert list(codes) == ["port-unusable"]
    assert "Envoy's rate-limit service" in codes["port-unusable"]
    assert "another program uses it" in codes["port-unusable"]


def test_equal_ports_are_found(base: dict[str, str]) -> None:
    """Before the second of them cannot be opened."""
    port = str(free_port())
    codes = found(**base, port=port, grpc_port=port)
    assert list(codes) == ["ports-equal"]
    assert f"port {port}" in codes["ports-equal"]


def events(base: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Settings with a data directory that is used."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return base | {"events_file": str(tmp_path / "events.jsonl"), "data_dir": str(folder)}


def test_faults_of_the_data_directory_are_found(base: dict[str, str], tmp_path: Path) -> None:
    """A file in its place, a mode that lets others read it, and a disk that is too small."""
    settings = events(base, tmp_path)
    assert found(**settings) == {}
    assert list(found(**settings, spool_limit=str(2**50))) == ["disk-small"]
    (tmp_path / "data").chmod(0o755)
    assert "has mode 0755" in found(**settings)["data-dir-readable"]
    (tmp_path / "data").rmdir()
    (tmp_path / "data").touch()
    assert list(found(**settings)) == ["data-dir-unusable"]


def test_faults_of_secret_files_are_found(base: dict[str, str], tmp_path: Path) -> None:
    """A secret that every user of the machine can read is none."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    codes = found(**base, service_token_file=str(file))
    assert list(codes) == ["secret-readable"]
    assert "HEADGATE_SERVICE_TOKEN_FILE has mode 0644" in codes["secret-readable"]
    file.chmod(0o600)
    assert found(**base, service_token_file=str(file)) == {}
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.certificate("127.0.0.1")
    Path(key).chmod(0o604)
    assert list(found(**base, tls_cert=str(certificate), tls_key=str(key))) == ["secret-readable"]


def test_faults_of_the_admin_token_are_found(base: dict[str, str], tmp_path: Path, database_url: str) -> None:
    """One that others can read, and one that was cut off."""
    settings = events(base, tmp_path) | {"database_url": database_url}
    (tmp_path / "data" / "admin-token").write_text("hgt_cut\n")
    (tmp_path / "data" / "admin-token").chmod(0o604)
    codes = found(**settings)
    assert "has mode 0604" in codes["admin-token-readable"]
    assert "holds no whole token" in codes["admin-token-broken"]


def test_keys_that_cannot_be_fetched_are_found(base: dict[str, str], tmp_path: Path) -> None:
    """The verifier would refuse every token."""
    settings = base | {"jwt_algorithms": "RS256", "jwt_jwks_url": f"file://{tmp_path}/keys.json"}
    assert list(found(**settings)) == ["keys-unusable"]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": []}))
    assert found(**settings) == {}


def test_an_archive_that_cannot_be_written_is_found(base: dict[str, str], tmp_path: Path, database_url: str) -> None:
    """A file is no folder."""
    (tmp_path / "file").touch()
    settings = base | {"database_url": database_url, "archive_daily": "yes"}
    assert "archive-unusable" in found(**settings, archive_url=f"{tmp_path}/file/archive")
    assert "archive-unusable" not in found(**settings, archive_url=f"{tmp_path}/archive")


def test_backups_that_are_never_deleted_are_found(base: dict[str, str], tmp_path: Path, database_url: str) -> None:
    """Whichever kind is made every day; with a number of those that are kept, all is well."""
    settings = base | {"database_url": database_url, "archive_url": f"{tmp_path}/archive"}
    dump, files = {"backup_daily": "yes"}, {"base_backup_folder": f"{tmp_path}/base"}
    for making, words in (dump, "beside HEADGATE_BACKUP_DAILY"), (files, "beside HEADGATE_BASE_BACKUP_FOLDER"):
        assert words in found(**settings, **making)["backups-unbounded"]
        assert "backups-unbounded" not in found(**settings, **making, backup_keep="7")
    assert "backups-unbounded" not in found(**settings, backup_keep="7")


RULES = {
    "rule-hidden": (
        "[{name: a, limits: 5/minute, priority: 1}, {name: b, limits: 9/minute}]",
        "b: a matches every request that it matches, and its priority is 100",
    ),
    "rule-never-admits": ("[{name: a, limits: 5/minute, cost: {default: 6}}]", "a: a request costs at least 6"),
    "rule-field-without-effect": (
        "[{name: a, limits: 5/minute, wait_replicas: 1}]",
        "wait_replicas of a has no effect",
    ),
}


@pytest.mark.parametrize("code", RULES)
def test_a_planted_rule_is_found(code: str, base: dict[str, str], tmp_path: Path) -> None:
    """Rules that pass validation and still do not do what their author meant."""
    text, words = RULES[code]
    (tmp_path / "rules.yaml").write_text(f"rules: {text}\n")
    codes = found(**(base | {"rules_file": str(tmp_path / "rules.yaml")}))
    assert list(codes) == [code]
    assert words in codes[code]


def test_stored_rules_and_very_many_rules() -> None:
    """A stored rule of an earlier version can never match; of very many rules not all are compared."""
    report = Report()
    stored = [{"name": "a", "limits": "5/minute", "match": {"endpoints": ["/x%0a"]}}]
    check_rules(parse_rule_set(stored, stored=True), "database", Settings(), report)
    many = [{"name": f"r{number}", "limits": "5/minute"} for number in range(50)]
    check_rules(parse_rule_set(many), "database", Settings(), report)
    check_rules(parse_rule_set(many), "database", Settings(), report, max_pairs=10)
    codes = [issue.code for issue in report.issues]
    assert codes[0] == "rule-never-matches"
    assert codes.count("rule-hidden") == 21
    assert report.issues[-2].sentence == "29 more rules decide nothing either"
    assert codes[-1] == "rules-not-all-compared"


def test_the_exit_code_says_how_grave_it_is(
    base: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 without a fault or with notes only, 2 with warnings, 1 with errors; as text and as JSON."""
    for name, text in (base | {"port": "0", "grpc_port": "0"}).items():
        monkeypatch.setenv(f"HEADGATE_{name.upper()}", text)
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("\nNothing is wrong.\n")
    monkeypatch.setenv("HEADGATE_REDIS_URL", "embedded://")
    assert run(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("\n1 note found.\n")
    monkeypatch.setenv("HEADGATE_TRUSTED_PROXIES", "0.0.0.0/0")
    assert run(["doctor"]) == 2
    printed = capsys.readouterr().out
    assert printed.endswith("\n1 warning, 1 note found.\n")
    assert f"→ {KINDS['proxies-trust-all'].remedy}  [proxies-trust-all]" in printed
    monkeypatch.setenv("HEADGATE_PORT", "x")
    assert run(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["errors"], answer["warnings"], answer["notes"]) == (1, 1, 1)
    assert [each["code"] for each in answer["findings"]] == [
        "setting-malformed",
        "proxies-trust-all",
        "embedded-stopped",
    ]
    assert answer["findings"][0]["remedy"] == KINDS["setting-malformed"].remedy
    assert answer["well"]


def test_options_are_those_of_serve(base: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """--rules and --database are looked at as `headgate serve` would use them."""
    del base
    assert run(["doctor", "--rules", EXAMPLES, "--json"]) in {0, 1}
    assert "8 rules from the file" in capsys.readouterr().out
    assert run(["doctor", "--rules", "nowhere.yaml"]) == 1
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().out
    assert run(["doctor", "--database", "postgres", "--rules", EXAMPLES]) == 1
    assert "HEADGATE_DATABASE_URL is malformed" in capsys.readouterr().out
