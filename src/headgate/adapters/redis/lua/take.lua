-- take and peek: decide many independent requests, each of them all or nothing.
--
-- KEYS  one counter per hit
-- ARGV  1      '<ddd' instant (0: the server's clock), least time to live in ms, 1 to only peek
--       2      one byte per request: how many hits it has
--       3...   one packed hit per key, see prelude.lua
-- Returns one string: '<i8' the instant, then eight '<i8' per hit: allowed (1, 0, or -1 if the
-- request could not be decided because a key holds something else), remaining, reset_after,
-- retry_after (-1: never), delay, three of stamp.

local given, least_ttl, only_peek = struct.unpack('<ddd', ARGV[1])
local now = read_clock(given)
local ROW = '<i8i8i8i8i8i8i8i8'
local BROKEN = struct.pack(ROW, -1, 0, 0, 0, 0, 0, 0, 0)

-- One hit on its way: decided, not yet counted.
local function asked(position)
  local key, hit = KEYS[position], read_hit(ARGV[2 + position])
  local one = {key = key, hit = hit}
  one.state, one.open, one.stale = load(key, hit, now)
  return one
end

local function row(one, cost)
  local after, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3 =
    ALGORITHMS[one.hit.algorithm].decide(one.state, one.hit, now, cost)
  one.after, one.allowed, one.stamp = after, allowed == 1, {s1, s2, s3}
  return struct.pack(ROW, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3)
end

-- Decides all hits of a request; only reads.
local function decide(first, size)
  local hits, rows, allowed = {}, {}, true
  for index = 1, size do
    local one = asked(first + index)
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
  return hits, rows, allowed
end

-- Counts an admitted request. A denied one writes only if the clock stepped back.
local function count(hits, allowed)
  for _, one in ipairs(hits) do
    local hit, open = one.hit, one.open
    if allowed and hit.ttl and hit.algorithm ~= 5 then
      open = open or {}
      open[#open + 1] = {hit.holder, now + hit.ttl, hit.cost, one.stamp[1], one.stamp[2], one.stamp[3], 0}
    end
    if one.after ~= one.state and (one.state or hit.cost > 0) then
      save(one.key, hit, one.after, open, now, least_ttl)
    end
  end
end

local answers = {struct.pack('<i8', now)}
local position = 0
for request = 1, #ARGV[2] do
  local size = string.byte(ARGV[2], request)
  -- A key that holds something else spoils its own request, not the others of this call.
  local fine, hits, rows, allowed = pcall(decide, position, size)
  if fine then
    if only_peek == 0 then
      count(hits, allowed)
    end
    answers[#answers + 1] = table.concat(rows)
  else
    answers[#answers + 1] = string.rep(BROKEN, size)
  end
  position = position + size
end
return table.concat(answers)
