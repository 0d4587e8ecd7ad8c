"""Jobs of arq at one rate, however many workers there are: arq arq_tasks.WorkerSettings (in examples/).

`python arq_tasks.py mail 100` puts a hundred jobs in the queue. The queue and the counters are on REDIS_URL.
"""

import asyncio
import os
import sys
import time
from typing import Any, ClassVar

import arq
from arq.connections import RedisSettings

from headgate import AcquireTimeout, Limiter

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")
LIMITS = {"mail": "20/second burst 5", "sms": "2/3 seconds burst 2"}  # what the providers allow


async def send(context: dict[str, Any], provider: str, number: int) -> None:
    """Wait for up to a second; a longer wait is spent in the queue, so that the worker can do something else."""
    try:
        await context["limiter"].acquire(provider, LIMITS[provider], timeout=1, algorithm="token_bucket")
    except AcquireTimeout as error:
        raise arq.Retry(defer=error.seconds) from None
    print(f"{provider} {number} at {time.time():.3f} by {os.getpid()}", flush=True)


async def begin(context: dict[str, Any]) -> None:
    """One limiter for all jobs of a worker."""
    context["limiter"] = Limiter.open(f"{URL}?on_store_error=deny")


async def end(context: dict[str, Any]) -> None:
    """Closed with the worker."""
    await context["limiter"].close()


class WorkerSettings:
    """What arq reads."""

    functions: ClassVar = [send]
    redis_settings = RedisSettings.from_dsn(URL)
    on_startup = begin
    on_shutdown = end
    max_jobs = 10
    max_tries = 1_000_000  # a wait in the queue counts as a try


async def main(provider: str, jobs: int) -> None:
    """Put jobs in the queue."""
    queue = await arq.create_pool(WorkerSettings.redis_settings)
    for job in range(jobs):
        await queue.enqueue_job("send", provider, job)
    await queue.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
