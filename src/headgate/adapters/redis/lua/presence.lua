-- presence: which processes are alive.
--
-- KEYS  1  a sorted set: processes, by the second until which they count as alive
-- ARGV  1  the name of the process that says that it is alive
--       2  for how many seconds that holds
-- Returns how many processes are alive.

if redis.replicate_commands then
  redis.replicate_commands() -- Redis 6.2 lets a script write after TIME only so
end
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('EXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2])) + 1)
return redis.call('ZCARD', KEYS[1])
