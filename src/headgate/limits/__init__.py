"""A storage for the `limits` library, and so for flask-limiter and slowapi: import this, and change a URL.

    import headgate.limits
    from limits import RateLimitItemPerMinute, storage, strategies

    limiter = strategies.FixedWindowRateLimiter(storage.storage_from_string("headgate+memory://"))
    assert limiter.hit(RateLimitItemPerMinute(1), "u_42")
    assert not limiter.hit(RateLimitItemPerMinute(1), "u_42")

Importing registers ``headgate+memory://``, ``headgate+redis://`` and all other store addresses of headgate, and the
same with ``async+`` before it for `limits.aio`. In flask-limiter it is ``storage_uri="headgate+redis://localhost:6379"``.
"""

from headgate.limits.storage import AsyncHeadgateStorage, HeadgateStorage

__all__ = ["AsyncHeadgateStorage", "HeadgateStorage"]
