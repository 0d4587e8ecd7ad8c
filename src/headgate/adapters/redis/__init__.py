"""Counters in Redis or Valkey."""

from headgate.adapters.redis.address import ServerAddress, StoreAddress
from headgate.adapters.redis.direct import DirectStore
from headgate.adapters.redis.opening import store_at, store_on
from headgate.adapters.redis.store import RedisStore
from headgate.adapters.redis.url import REDIS_SCHEMES, is_redis_url

__all__ = [
    "REDIS_SCHEMES",
    "DirectStore",
    "RedisStore",
    "ServerAddress",
    "StoreAddress",
    "is_redis_url",
    "store_at",
    "store_on",
]
