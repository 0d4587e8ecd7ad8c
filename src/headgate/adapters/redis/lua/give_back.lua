-- give_back: undo admissions, each once.
--
-- KEYS  per receipt: its counter, and the key that remembers that it was given back
-- ARGV  1      '<dd' instant (0: the server's clock), least time to live in ms
--       2...   per receipt: a packed hit (its cost is the amount to give back; concurrency: its
--              holder is to be released), then '<ddd' the stamp, then the receipt's id

local given, least_ttl = struct.unpack('<dd', ARGV[1])
local now = read_clock(given)

for receipt = 1, #KEYS / 2 do
  local key, spent = KEYS[2 * receipt - 1], KEYS[2 * receipt]
  local hit = read_hit(ARGV[3 * receipt - 1])
  local stamp = {struct.unpack('<ddd', ARGV[3 * receipt])}
  local id = ARGV[3 * receipt + 1]
  local algorithm = ALGORITHMS[hit.algorithm]
  local state, open = load(key, hit, now)
  local after, counts = state, true
  if hit.algorithm ~= 5 then
    local until_then = algorithm.creditable_until(stamp, hit)
    counts = until_then > now
    local reserved
    for _, each in ipairs(open or {}) do
      if each[ID] == id then
        reserved = each
      end
    end
    if reserved then
      counts = counts and reserved[CLOSED] == 0
      reserved[CLOSED] = 1
    elseif counts then
      local ttl = math.max(1, math.ceil((until_then - now) / 1000) + 1, least_ttl)
      counts = redis.call('SET', spent, '1', 'NX', 'PX', string.format('%.0f', ttl))
    end
  end
  if counts then
    after = algorithm.give_back(state, hit, now, stamp, hit.cost)
  end
  if after and (after ~= state or open) then
    save(key, hit, after, open, now, least_ttl)
  end
end
