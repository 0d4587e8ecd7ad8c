"""Jobs of Dramatiq at one rate, however many workers there are: dramatiq dramatiq_tasks (in examples/).

`python dramatiq_tasks.py mail 100` puts a hundred jobs in the queue. The broker and the counters are on REDIS_URL.
"""

import os
import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from headgate import AcquireTimeout, sync

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")
LIMITS = {"mail": "20/second burst 5", "sms": "2/3 seconds burst 2"}  # what the providers allow

dramatiq.set_broker(RedisBroker(url=URL))
limiter = sync.Limiter.open(f"{URL}?on_store_error=deny")  # one for all threads of a process


@dramatiq.actor(max_retries=None)
def send(provider: str, number: int) -> None:
    """Wait for up to a second; a longer wait is spent in the queue, so that the worker can do something else."""
    try:
        limiter.acquire(provider, LIMITS[provider], timeout=1, algorithm="token_bucket")
    except AcquireTimeout as error:
        raise dramatiq.errors.Retry(str(error), delay=round(error.seconds * 1_000)) from None
    print(f"{provider} {number} at {time.time():.3f} by {os.getpid()}", flush=True)


if __name__ == "__main__":
    for job in range(int(sys.argv[2])):
        send.send(sys.argv[1], job)
