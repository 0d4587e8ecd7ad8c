-- give_back: undo admissions, each once.
--
-- KEYS  per receipt: its counter, and the key that remembers that it was given back
-- ARGV  1      '<dd' instant (0: the server's clock), least time to live in ms
--       2...   per receipt: a packed hit (its cost is the amount to give back; slots: its
--              holder is to be released), then '<ddd' the stamp

local given, least_ttl = struct.unpack('<dd', ARGV[1])
local now = read_clock(given)

for receipt = 1, #KEYS / 2 do
  local key, spent = KEYS[2 * receipt - 1], KEYS[2 * receipt]
  local hit = read_hit(ARGV[2 * receipt])
  local stamp = {struct.unpack('<ddd', ARGV[2 * receipt + 1])}
  local algorithm = ALGORITHMS[hit.algorithm]
  local counts = true
  if hit.algorithm ~= CONCURRENCY then -- slots are released by name, which once is enough for
    local span = algorithm.creditable_until(stamp, hit) - now
    local ttl = math.max(1, math.ceil(span / 1000) + 1, least_ttl)
    counts = span > 0 and redis.call('SET', spent, '1', 'NX', 'PX', string.format('%.0f', ttl))
  end
  if counts then
    local state = load(key, hit)
    local after = algorithm.give_back(state, hit, now, stamp, hit.cost)
    if after ~= state then
      save(key, hit, after, now, least_ttl)
    end
  end
end
