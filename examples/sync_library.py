"""The same limits in a program without asyncio, shared by threads: python examples/sync_library.py."""

from concurrent.futures import ThreadPoolExecutor

from headgate.sync import Limiter


def main() -> None:
    """Eight threads share one limit; exactly its amount passes."""
    with Limiter.open("memory://") as limiter, ThreadPoolExecutor(8) as threads:
        verdicts = list(threads.map(lambda _: limiter.hit("emails", "20/minute"), range(100)))
    passed = sum(verdict.allowed for verdict in verdicts)
    print(f"{passed} of {len(verdicts)} emails were sent")


if __name__ == "__main__":
    main()
