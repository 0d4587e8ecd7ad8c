"""Counters in Redis or Valkey."""

from headgate.adapters.redis.address import REDIS_SCHEMES, ServerAddress, StoreAddress
from headgate.adapters.redis.direct import DirectStore
from headgate.adapters.redis.opening import store_at, store_on
from headgate.adapters.redis.store import RedisStore

__all__ = ["REDIS_SCHEMES", "DirectStore", "RedisStore", "ServerAddress", "StoreAddress", "store_at", "store_on"]
