-- take and peek: decide many independent requests, each of them all or nothing.
--
-- KEYS  one counter per hit
-- ARGV  1      '<ddd' instant (0: the server's clock), least time to live in ms, 1 to only peek
--       2      '<I2' per request: how many hits it has
--       3...   one packed hit per key, see prelude.lua
-- Returns one string: '<i8' the instant, then eight '<i8' per hit: allowed (1, 0, or -1 if the
-- request could not be decided because a key holds something else), remaining, reset_after,
-- retry_after (-1: never), delay, three of stamp.

local given, least_ttl, only_peek = struct.unpack('<ddd', ARGV[1])
local now = read_clock(given)
local ROW = '<i8i8i8i8i8i8i8i8'
local BROKEN = struct.pack(ROW, -1, 0, 0, 0, 0, 0, 0, 0)

-- Decides one hit; a forced one is counted even past its limit.
local function row(one, cost)
  local hit = one.hit
  local algorithm = ALGORITHMS[hit.algorithm]
  local after, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3 =
    algorithm.decide(one.state, hit, now, cost)
  if allowed == 0 and hit.forced and algorithm.charge then
    after, allowed, remaining, retry_after, delay = algorithm.charge(one.state, hit, now, cost), 1, 0, 0, 0
  end
  one.after, one.allowed = after, allowed == 1
  return struct.pack(ROW, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3)
end

-- Decides all hits of a request; only reads.
local function decide(first, size)
  local hits, rows, allowed = {}, {}, true
  for index = 1, size do
    local key, hit = KEYS[first + index], read_hit(ARGV[2 + first + index])
    local one = {key = key, hit = hit, state = load(key, hit)}
    hits[index] = one
    rows[index] = row(one, one.hit.cost)
    allowed = allowed and one.allowed
  end
  if not allowed then
    for index, one in ipairs(hits) do
      if one.allowed then -- nothing is counted, so it is answered as it stands
        rows[index] = row(one, 0)
        one.after = one.state
      end
    end
  end
  return hits, rows
end

-- Counts an admitted request. A denied one writes only if the clock stepped back.
local function count(hits)
  for _, one in ipairs(hits) do
    if one.after ~= one.state then
      save(one.key, one.hit, one.after, now, least_ttl)
    end
  end
end

local answers = {struct.pack('<i8', now)}
local position = 0
for request = 1, #ARGV[2], 2 do
  local size = struct.unpack('<I2', ARGV[2], request)
  -- A key that holds something else spoils its own request, not the others of this call.
  local fine, hits, rows = pcall(decide, position, size)
  if fine then
    if only_peek == 0 then
      count(hits)
    end
    answers[#answers + 1] = table.concat(rows)
  else
    answers[#answers + 1] = string.rep(BROKEN, size)
  end
  position = position + size
end
return table.concat(answers)
