"""Counters in Redis or Valkey."""

from headgate.adapters.redis.address import REDIS_SCHEMES, ServerAddress
from headgate.adapters.redis.store import RedisStore

__all__ = ["REDIS_SCHEMES", "RedisStore", "ServerAddress"]
