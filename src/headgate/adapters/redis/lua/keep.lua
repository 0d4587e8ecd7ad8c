-- keep: values of the cache that processes share, in place of those that are there.
--
-- KEYS     names of values
-- ARGV  1  for how many milliseconds they are kept
--       2… the values, in the order of their names
-- A name whose value was dropped a moment ago has an empty value for a mark, and keeps it: what was read
-- before the drop is out of date.

for index, key in ipairs(KEYS) do
  if redis.call('GET', key) ~= '' then
    redis.call('SET', key, ARGV[index + 1], 'PX', ARGV[1])
  end
end
return #KEYS
