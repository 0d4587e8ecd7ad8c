"""Which pages are typed from top to bottom, and which commands are not, with the reason for each."""

from __future__ import annotations

import re
from typing import Final

READING: Final = (
    "quickstart.md",
    "operations.md",
    "how-to/answer-questions.md",
    "how-to/bill-for-usage.md",
    "how-to/model-token-budgets.md",
    "how-to/protect-logins.md",
    "how-to/watch-it.md",
    "how-to/write-rules.md",
    "reference/admin-api.md",
)
"""On one service with the example rules and some traffic."""
CHANGING: Final = (
    "../README.md",
    "how-to/sell-tiers.md",
    "how-to/roll-out-in-shadow.md",
    "how-to/when-redis-is-down.md",
)
"""On another one, because they change tiers and rules."""
SERVING: Final = (
    "how-to/administer.md",
    "how-to/identify-callers.md",
    "how-to/move-from-envoy-ratelimit.md",
    "how-to/move-from-slowapi-and-flask-limiter.md",
    "how-to/put-behind-a-gateway.md",
    "how-to/run-the-service.md",
    "how-to/send-events-to-kafka.md",
    "how-to/several-regions.md",
    "how-to/use-a-cluster.md",
    "reference/doctor.md",
)
"""Each starts what it needs itself."""
KEEPING: Final = ("how-to/keep-events-for-years.md", "how-to/try-rules-on-yesterdays-traffic.md")
"""On one database and one archive, with events of today and of a month that ended long ago."""
DATABASES: Final = ("how-to/recover.md", "how-to/use-postgres.md")
"""On a server of PostgreSQL, where they make and drop databases."""
RULES_AS_CODE: Final = "how-to/rules-as-code.md"
TYPED: Final = frozenset((*READING, *CHANGING, *SERVING, *KEEPING, *DATABASES, RULES_AS_CODE))

LEFT_OUT: Final = {
    r"python3 -m venv ": "the tests run in an environment that has everything",
    r"(\.venv/bin/)?pip install ": "the same; `make check-wheel` installs each extra in an environment of its own",
    r"make serve": "tests/docs/test_http_example.py runs what it runs, when the environment is made",
    r"make test": "it runs these tests",
    r"cat rules\.yaml$": "tests/docs/test_commands.py makes the file that this shows",
    r"valkey-cli ACL SETUSER ": "no wheel has valkey-cli; tests/docs/test_redis_privileges.py sends the commands",
    r"valkey-cli --cluster ": "no wheel has valkey-cli; tests/support/cluster.py makes such a cluster",
    r"valkey-server cluster\.conf": "tests/integration/test_deploy_files.py starts servers with this file",
    r"kafka-topics\.sh ": "Kafka's tools need Java; the mock brokers make a topic when it is asked for",
    r"kubectl ": "there is no Kubernetes where the tests run; `make check-deploy` checks the chart",
    r"helm ": "there is no Kubernetes where the tests run; `make check-deploy` checks the chart",
    r"headgate simulate --rules shop-draft\.yaml ": "the log of one night that the page shows has 60,000 lines",
    r"\.venv/bin/python -m pytest ": "it runs tests like these, for contributors",
    r"(PYTHONPATH=\S+ )?\.venv/bin/python tools/walk_paths\.py": "it takes minutes, and is for contributors",
}
"""How a command begins, and why no test types it."""
PATTERNS: Final = tuple(map(re.compile, LEFT_OUT))
ELSEWHERE: Final = {
    "docs/reference/cli.md": "tests/docs/test_commands.py types the one block and compares every word",
}
"""Pages whose commands a test of their own types."""
