"""Jobs of Celery at one rate, however many workers there are: celery --app celery_tasks worker (in examples/).

`python celery_tasks.py mail 100` puts a hundred jobs in the queue. The broker and the counters are on REDIS_URL.
(The `rate_limit` of Celery itself holds for each worker alone.)
"""

import os
import sys
import time

from celery import Celery, Task

from headgate import AcquireTimeout, sync

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")
LIMITS = {"mail": "20/second burst 5", "sms": "2/3 seconds burst 2"}  # what the providers allow

app = Celery("celery_tasks", broker=URL)
limiter = sync.Limiter.open(
    f"{URL}?on_store_error=deny"
)  # connects when it is first used, in each process that Celery forks


@app.task(bind=True, max_retries=None)
def send(task: Task, provider: str, number: int) -> None:
    """Wait for up to a second; a longer wait is spent in the queue, so that the worker can do something else."""
    try:
        limiter.acquire(provider, LIMITS[provider], timeout=1, algorithm="token_bucket")
    except AcquireTimeout as error:
        raise task.retry(countdown=error.seconds) from None
    print(f"{provider} {number} at {time.time():.3f} by {os.getpid()}")


if __name__ == "__main__":
    for job in range(int(sys.argv[2])):
        send.delay(sys.argv[1], job)
