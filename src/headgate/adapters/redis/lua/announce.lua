-- announce: tells all processes of changes, and notes up to which one they were told.
--
-- KEYS  1  a hash: lineage, number and mark of the last change that was announced
-- ARGV  1  lineage
--       2  number
--       3  mark
--       4  the channel
--       5  the message
-- Returns 1. Within a lineage the number never goes back: another process may have announced more already.

redis.call('PUBLISH', ARGV[4], ARGV[5]) -- first, or what may not be published would count as announced
local there = redis.pcall('HMGET', KEYS[1], 'lineage', 'number')
if there.err then
  redis.call('DEL', KEYS[1]) -- whatever that is, it is no position
end
if there.err or there[1] ~= ARGV[1] or (tonumber(there[2]) or 0) < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'lineage', ARGV[1], 'number', ARGV[2], 'mark', ARGV[3])
end
return 1
