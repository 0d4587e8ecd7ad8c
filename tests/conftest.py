"""Hypothesis profiles: `fast` for every run, `long` (HYPOTHESIS_PROFILE=long) for half a million steps an algorithm."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Generating a history may take longer than Hypothesis likes on a busy machine; there are no deadlines.
settings.register_profile(
    "fast", deadline=None, derandomize=True, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "long", deadline=None, max_examples=1_500, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
pytest_plugins = ["tests.support.servers", "tests.support.service"]
collect_ignore = ["chaos"]  # outages that last minutes; `make chaos` names the folder
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
