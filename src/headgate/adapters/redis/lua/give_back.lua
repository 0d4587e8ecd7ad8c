-- give_back: undo admissions, each once.
--
-- KEYS  the counters, one per receipt; then, unless 'undo', as many keys that remember that
--       these receipts were given back
-- ARGV  1      '<ddd' instant (0: the server's clock), least time to live in ms, 1 to undo
--       2...   per receipt: a packed hit (its cost is the amount to give back; slots: its
--              holder is to be released), then '<ddd' the stamp
--
-- Undo is for a request that another shard did not admit: its caller never got the receipts, so
-- they need not be remembered, and a counter that counted nothing else is removed again.

local given, min_ttl, undo = struct.unpack('<ddd', ARGV[1])
local now = read_clock(given)
local receipts = undo == 1 and #KEYS or #KEYS / 2

-- Whether a receipt counts: its time is not over, and it was not given back before.
local function is_good(receipt, hit, stamp)
  if hit.code == CONCURRENCY then -- slots are released by name, which once is enough for
    return true
  end
  local span = hit.algorithm.creditable_until(stamp, hit) - now
  if undo == 1 or span <= 0 then
    return span > 0
  end
  return call('SET', KEYS[receipts + receipt], '1', 'NX', 'PX', time_to_live(span, min_ttl))
end

-- The counter as it is and as it is without the receipt; nothing is written.
local function without(key, hit, stamp)
  local algorithm = hit.algorithm
  local state = load(key, hit)
  local back = undo == 1 and algorithm.undo or algorithm.give_back
  local after = back(state, hit, now, stamp, hit.cost)
  if after ~= state and undo == 1 and algorithm.is_unused and algorithm.is_unused(after) then
    after = nil
  end
  return state, after
end

-- A key that holds something else spoils its own receipt, which is not used up, and no other.
local all_fine = true
for receipt = 1, receipts do
  local key, hit = KEYS[receipt], read_hit(ARGV[2 * receipt])
  local stamp = {struct.unpack('<ddd', ARGV[2 * receipt + 1])}
  local fine, state, after = pcall(without, key, hit, stamp)
  all_fine = all_fine and fine
  if fine and is_good(receipt, hit, stamp) and after ~= state then
    save(key, hit, after, now, min_ttl)
  end
end
if not all_fine then
  return redis.error_reply('WRONGTYPE a counter holds something else')
end
