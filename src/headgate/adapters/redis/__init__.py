"""Counters in Redis or Valkey, and the feed of changes."""

from headgate.adapters.redis.address import REDIS_SCHEMES, ServerAddress, StoreAddress, is_redis_url
from headgate.adapters.redis.cache import RedisCache
from headgate.adapters.redis.counter_copies import CounterCopies
from headgate.adapters.redis.direct_store import DirectStore
from headgate.adapters.redis.factory import copies_at, copies_on, feed_at, feed_on, store_at, store_on
from headgate.adapters.redis.feed import RedisFeed
from headgate.adapters.redis.hot_lists import RedisHotLists
from headgate.adapters.redis.store import RedisStore

__all__ = [
    "REDIS_SCHEMES",
    "CounterCopies",
    "DirectStore",
    "RedisCache",
    "RedisFeed",
    "RedisHotLists",
    "RedisStore",
    "ServerAddress",
    "StoreAddress",
    "copies_at",
    "copies_on",
    "feed_at",
    "feed_on",
    "is_redis_url",
    "store_at",
    "store_on",
]
