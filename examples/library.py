"""Limits inside an asyncio program, without any server: python examples/library.py."""

import asyncio
from pathlib import Path

from headgate import Limiter, Refused, Request

RULES = Path(__file__).with_name("rules.yaml")


async def main() -> None:
    """Check a request by rules, hit a key with a limit, and hold a slot."""
    async with Limiter.open("memory://", rules=RULES) as limiter:
        # By rules: the limiter finds what applies to the request.
        request = Request(user="u_42", tier="free", ip="203.0.113.9", method="GET", path="/api/search")
        for number in range(1, 13):
            verdict = await limiter.check(request)
            word = "passes" if verdict.allowed else f"is refused, try again in {verdict.retry_after:.1f} s"
            print(f"search {number} {word}")
        print(verdict.headers())

        # By a key and a limit: nothing has to be configured.
        verdict = await limiter.hit("login:203.0.113.9", "5/minute", algorithm="sliding_window_log")
        print(f"login: {verdict.remaining} more tries")

        # A slot is held while the block runs.
        try:
            async with limiter.slot("reports:u_42", "1 concurrent"), limiter.slot("reports:u_42", "1 concurrent"):
                print("two reports at once")
        except Refused as refused:
            print(f"second report: {refused}")


if __name__ == "__main__":
    asyncio.run(main())
