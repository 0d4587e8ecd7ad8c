-- put_document: keeps a document, unless there is a newer one of the same lineage.
--
-- KEYS  1  a hash: lineage, number and digest of a document
--       2  its body
-- ARGV  1  lineage
--       2  number
--       3  digest
--       4  body
-- Returns 1 if it was kept.

local there = redis.pcall('HMGET', KEYS[1], 'lineage', 'number')
if there.err then
  redis.call('DEL', KEYS[1]) -- whatever that is, it is no document
elseif there[1] == ARGV[1] and (tonumber(there[2]) or 0) > tonumber(ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[1], 'lineage', ARGV[1], 'number', ARGV[2], 'digest', ARGV[3])
return 1
