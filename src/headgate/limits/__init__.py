"""A storage for the `limits` library, and so for flask-limiter and slowapi: import this, and change a URL.

import headgate.limits

limiter = Limiter(get_remote_address, app=app, storage_uri="headgate+redis://localhost:6379")

Importing registers ``headgate+memory://``, ``headgate+redis://`` and all other store
addresses of headgate, and the same behind ``async+`` for `limits.aio`.
"""

from headgate.limits.storage import AsyncHeadgateStorage, HeadgateStorage

__all__ = ["AsyncHeadgateStorage", "HeadgateStorage"]
