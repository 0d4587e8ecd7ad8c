"""Everything that `headgate doctor` can find: how grave it is, what it means, and its remedy."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.cli.diagnosis.issue import Issue, IssueKind, Passed, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE

KINDS: Final[Mapping[str, IssueKind]] = MappingProxyType(
    {
        # Settings
        "setting-malformed": IssueKind(
            _E, "a setting cannot be read", "Write what the message says, or unset the variable."
        ),
        "setting-unknown": IssueKind(
            _W,
            "a variable begins with HEADGATE_ and is no setting",
            "Correct its name, or unset it; `docs/reference/settings.md` has all names.",
        ),
        "setting-refused": IssueKind(
            _E,
            "a setting that decides who a caller is, or what is kept, has no effect",
            "Do what the message says, or unset the variable: the service does not start with it.",
        ),
        "setting-without-effect": IssueKind(
            _W, "a setting has no effect with the others", "Do what the message says, or unset the variable."
        ),
        "workers-on-memory": IssueKind(
            _E,
            "several processes would each count by themselves",
            "Set HEADGATE_WORKERS=1, or HEADGATE_REDIS_URL to a server that they share.",
        ),
        "token-weak": IssueKind(
            _E, "a token can be guessed, or was cut off", "Write another one, as by `openssl rand -hex 32`."
        ),
        "tls-unusable": IssueKind(
            _E, "the certificate or its key cannot be used", "Name a certificate and its own key, both in PEM."
        ),
        "jwt-unusable": IssueKind(
            _E,
            "tokens of callers could not be verified safely",
            "Set HEADGATE_JWT_ALGORITHMS and one key, as the message says.",
        ),
        "open-to-network": IssueKind(
            _W,
            "other machines can state who a caller is, and need no token for it",
            "Set HEADGATE_SERVICE_TOKEN or HEADGATE_TLS_CLIENT_CA, or HEADGATE_HOST=127.0.0.1.",
        ),
        "admin-open-to-network": IssueKind(
            _W,
            "the admin API listens on a network, and has no TLS",
            "Set HEADGATE_ADMIN_HOST=127.0.0.1, and put a proxy with TLS in front of it.",
        ),
        "proxies-trust-all": IssueKind(
            _W,
            "any caller can choose the address that it is counted by",
            "Name only the addresses of your proxies in HEADGATE_TRUSTED_PROXIES.",
        ),
        "proxies-none": IssueKind(
            _N,
            "the service listens on a network and trusts no proxy",
            "Behind a gateway, name its addresses in HEADGATE_TRUSTED_PROXIES; else ignore this.",
        ),
        "backups-unbounded": IssueKind(
            _W,
            "a backup is made every day and none is deleted, so the disk fills",
            "Say in HEADGATE_BACKUP_KEEP how many are kept, unless the store deletes old ones itself.",
        ),
        # Packages
        "package-missing": IssueKind(
            _E, "a setting needs a package that is not installed", "Install it with the command in the message."
        ),
        # Ports
        "port-unusable": IssueKind(
            _E, "the service cannot listen where it shall", "Choose another host or port, or stop what listens there."
        ),
        "ports-equal": IssueKind(
            _E, "two parts of the service shall listen on one port", "Give each of them a port of its own."
        ),
        "service-not-ready": IssueKind(
            _W, "the service that runs is not ready", "`headgate status` and its log say what it waits for."
        ),
        # Files
        "data-dir-unusable": IssueKind(
            _E,
            "the data directory cannot be written",
            "Give it to the user that runs the service, or set HEADGATE_DATA_DIR to another one.",
        ),
        "data-dir-readable": IssueKind(
            _W, "other users of the machine can read the data directory", "Run `chmod 700` on it."
        ),
        "admin-token-readable": IssueKind(
            _E,
            "other users of the machine can read the admin token",
            "Delete the file, and a new token is made; or run `chmod 600` on it if the token is still secret.",
        ),
        "admin-token-broken": IssueKind(
            _E, "its file has no complete token", "Delete the file, and a new token is made."
        ),
        "secret-readable": IssueKind(
            _W, "other users of the machine can read a file with a secret", "Run `chmod 600` on it."
        ),
        "disk-small": IssueKind(
            _W,
            "the disk has less room than events may take while a sink is unavailable",
            "Make room, or set HEADGATE_SPOOL_LIMIT to less than what is free.",
        ),
        # Redis
        "redis-address": IssueKind(
            _E, "the address of the counters cannot be read", "Correct HEADGATE_REDIS_URL as the message says."
        ),
        "redis-down": IssueKind(
            _E,
            "Redis does not answer",
            "Start it, or correct HEADGATE_REDIS_URL; until then rules do what their on_store_error says.",
        ),
        "redis-refuses": IssueKind(
            _E, "Redis does not let headgate in", "Correct user and password in HEADGATE_REDIS_URL."
        ),
        "redis-old": IssueKind(_E, "Redis is too old", "Install Redis 6.2 or newer, or Valkey 8 or newer."),
        "redis-replica": IssueKind(
            _E,
            "the address names a replica, which cannot be written",
            "Name the primary, or write redis+sentinel:// with the addresses of the sentinels.",
        ),
        "redis-is-cluster": IssueKind(
            _E, "the server is a node of a cluster, and the address says that it is alone", "Write redis+cluster://."
        ),
        "redis-slots-missing": IssueKind(
            _E,
            "a part of the cluster's slots has no server",
            "Start the missing nodes, or run `valkey-cli --cluster fix`.",
        ),
        "redis-rights": IssueKind(
            _E,
            "the Redis user may not send a command that headgate needs",
            "Grant it with ACL SETUSER; `docs/how-to/use-redis.md` has the list.",
        ),
        "redis-evicts": IssueKind(
            _W,
            "Redis drops counters when its memory is full, and their callers begin anew",
            "Set maxmemory-policy to noeviction, and give the counters a server of their own.",
        ),
        "redis-memory-full": IssueKind(
            _W,
            "Redis has little memory left, and will refuse to count",
            "Raise maxmemory, or shorten the periods of limits.",
        ),
        "redis-forgets": IssueKind(
            _W,
            "Redis writes nothing to disk, and a restart forgets what was counted",
            "Set appendonly to yes, unless every counter may begin anew after a restart.",
        ),
        "redis-fsync-always": IssueKind(
            _W, "every check waits for the disk of Redis", "Set appendfsync to everysec: at most a second is lost."
        ),
        "redis-saves-fail": IssueKind(
            _E,
            "Redis cannot write to its disk, and may refuse to count",
            "Look into its log; make room, or give its folder to the user that it runs as.",
        ),
        "redis-replicas-few": IssueKind(
            _W,
            "a rule waits for more replicas than there are",
            "Start replicas, or lower wait_replicas of that rule.",
        ),
        "redis-slow": IssueKind(
            _W,
            "Redis answers too slowly for the deadline of a check",
            "Bring it nearer, look for slow commands with SLOWLOG, or raise deadline_ms in HEADGATE_REDIS_URL.",
        ),
        "redis-clock": IssueKind(
            _W,
            "the clocks of Redis and of this machine differ",
            "Run an NTP client on both; windows follow the clock of Redis, records and tokens that of this machine.",
        ),
        "redis-not-looked-at": IssueKind(
            _N,
            "the Redis user may not read INFO",
            "Run `headgate doctor` once with a user that has +info and +config|get.",
        ),
        # PostgreSQL
        "database-address": IssueKind(
            _E, "the address of the database cannot be read", "Correct HEADGATE_DATABASE_URL as the message says."
        ),
        "database-down": IssueKind(
            _E,
            "the database does not answer",
            "Start it, or correct HEADGATE_DATABASE_URL; decisions go on meanwhile, changes do not.",
        ),
        "database-refuses": IssueKind(
            _E, "the database does not let headgate in", "Correct role, password and name in HEADGATE_DATABASE_URL."
        ),
        "database-old": IssueKind(_E, "PostgreSQL is too old", "Install PostgreSQL 14 or newer."),
        "database-standby": IssueKind(
            _E, "the database is a standby, which cannot be written", "Name the primary in HEADGATE_DATABASE_URL."
        ),
        "database-encoding": IssueKind(
            _E, "the database does not store all texts", "Make one with ENCODING 'UTF8', and move to it."
        ),
        "database-rights": IssueKind(
            _E,
            "the role of the database may not read and write headgate's tables",
            "Let the role own the tables, or grant it SELECT, INSERT, UPDATE and DELETE on them.",
        ),
        "database-unsafe": IssueKind(
            _W,
            "the database may lose what it has confirmed",
            "Set fsync and synchronous_commit to on.",
        ),
        "database-slow": IssueKind(
            _W,
            "the database answers slowly, and first requests of callers wait for it",
            "Bring it nearer, or relieve it.",
        ),
        "database-clock": IssueKind(
            _W, "the clocks of the database and of this machine differ", "Run an NTP client on both."
        ),
        "schema-foreign": IssueKind(
            _E,
            "the schema of the database is of another version",
            "Install the version of headgate that the message names.",
        ),
        "schema-behind": IssueKind(
            _W,
            "the schema of the database is older than this headgate",
            "Run `headgate db migrate`, or restart the service.",
        ),
        "partitions-missing": IssueKind(
            _W,
            "a coming month has no partition for its events",
            "Start the service, which makes them every hour; if it runs, its log says why it could not.",
        ),
        "embedded-stopped": IssueKind(
            _N, "an embedded server does not run, and was not looked at", "`headgate serve` starts it."
        ),
        # What else the service calls
        "kafka-unusable": IssueKind(
            _E, "events cannot be sent to Kafka", "Start the brokers, or correct HEADGATE_KAFKA_BROKERS."
        ),
        "keys-unusable": IssueKind(
            _E, "the keys of tokens cannot be fetched", "Correct HEADGATE_JWT_JWKS_URL, or start what answers there."
        ),
        "traces-unusable": IssueKind(
            _W, "traces cannot be sent", "Start the collector, or correct HEADGATE_OTEL_ENDPOINT."
        ),
        "archive-unusable": IssueKind(
            _E, "archives and backups cannot be written", "Make the folder writable, or correct HEADGATE_ARCHIVE_URL."
        ),
        # Rules
        "rules-unreadable": IssueKind(
            _E, "the rules cannot be used", "Mend what the message names, and run `headgate rules validate`."
        ),
        "rules-none": IssueKind(
            _W,
            "no rules were published, and every request is answered as HEADGATE_ON_NO_RULES says",
            "Publish some with `headgate rules apply FILE`.",
        ),
        "rule-never-matches": IssueKind(
            _W, "no request meets the conditions of a rule", "Correct its conditions, or delete it."
        ),
        "rule-hidden": IssueKind(
            _W,
            "another rule always comes before a rule, so it decides nothing",
            "Give it a lower priority number or a layer of its own, or delete it.",
        ),
        "rule-never-admits": IssueKind(
            _W, "every request costs more than the limit of a rule", "Raise the limit, or lower the cost."
        ),
        "rule-field-without-effect": IssueKind(
            _W, "a field of a rule has no effect with these settings", "Do what the message says, or remove the field."
        ),
        "rules-not-all-compared": IssueKind(
            _N,
            "there are too many rules to compare all of them",
            "`headgate explain` shows for one request which rule wins.",
        ),
    }
)


class Report:
    """What was looked at, in order."""

    def __init__(self) -> None:
        """Start empty."""
        self.passed: list[Passed] = []
        self.issues: list[Issue] = []

    def well(self, subject: str, sentence: str) -> None:
        """Something is as it should be."""
        self.passed.append(Passed(subject, sentence))

    def add(self, subject: str, code: str, sentence: str) -> None:
        """Something was found; `code` is one of the catalog's."""
        kind = KINDS[code]
        self.issues.append(Issue(code, kind.severity, subject, sentence, kind.remedy))

    def has(self, *severities: Severity) -> bool:
        """Whether something of that kind was found."""
        return any(issue.severity in severities for issue in self.issues)
