-- fetch: values of the cache that processes share.
--
-- KEYS  names of values
-- Returns what is kept under each, in their order.
--
-- A script with `GET`, and not `MGET`, because users of a server that may do no more than
-- headgate needed before have no right to `MGET`.

local values = {}
for index, key in ipairs(KEYS) do
  values[index] = redis.call('GET', key)
end
return values
