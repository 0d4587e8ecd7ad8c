-- take and peek: decide many independent requests, each of them all or nothing.
--
-- KEYS  one counter per hit
-- ARGV  1      '<ddd' instant (0: the server's clock), least time to live in ms, 1 to only peek
--       2      '<I2' per request: how many hits it has
--       3      '<I2' per hit: the number of its kind
--       4...   the kinds, from number 1 on: packed hits, see prelude.lua
-- Returns one string: '<i8' the instant, then eight '<i8' per hit: allowed (1, 0, or -1 if the
-- request could not be decided because a key holds something else), remaining, reset_after,
-- retry_after (-1: never), delay, three of stamp.
--
-- Most requests have one hit, and most hits of a call have the same limit, so both are made cheap.

local given, min_ttl, only_peek = struct.unpack('<ddd', ARGV[1])
local now = read_clock(given)
local keys, sizes, numbers = KEYS, ARGV[2], ARGV[3]
local pack = struct.pack

-- The number at an index, from 1, in a row of '<I2'.
local function short(row, index)
  local low, high = byte(row, 2 * index - 1, 2 * index)
  return low + 256 * high
end

local kinds = {}
for number = 1, #ARGV - 3 do
  kinds[number] = read_hit(ARGV[3 + number])
end
local only_kind = #kinds == 1 and kinds[1]

local function hit_at(position)
  return only_kind or kinds[short(numbers, position)]
end

local ROW = '<i8i8i8i8i8i8i8i8'
local answers = {}

-- Decides and answers one hit; a forced one is counted even past its limit.
local function decide(position, state, hit, cost)
  local algorithm = hit.algorithm
  local after, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3 =
    algorithm.decide(state, hit, now, cost)
  if allowed == 0 and hit.forced and algorithm.charge then
    after, allowed, remaining, retry_after, delay = algorithm.charge(state, hit, now, cost), 1, 0, 0, 0
  end
  answers[position] = pack(ROW, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3)
  return after, allowed == 1
end

local is_writing = false
-- Counts what was decided. A denied hit writes only if the clock stepped back.
local function keep(key, hit, state, after)
  if after ~= state and only_peek == 0 then
    is_writing = true
    save(key, hit, after, now, min_ttl)
    is_writing = false
  end
end

local function take_one(position)
  local key, hit = keys[position], hit_at(position)
  local state = load(key, hit)
  keep(key, hit, state, (decide(position, state, hit, hit.cost)))
end

local function take_several(first, size)
  local hits, all_allowed = {}, true
  for position = first, first + size - 1 do
    local one = {position = position, key = keys[position], hit = hit_at(position)}
    one.state = load(one.key, one.hit)
    one.after, one.allowed = decide(position, one.state, one.hit, one.hit.cost)
    hits[#hits + 1] = one
    all_allowed = all_allowed and one.allowed
  end
  for _, one in ipairs(hits) do
    if one.allowed and not all_allowed then -- nothing is counted, so it is answered as it stands
      decide(one.position, one.state, one.hit, 0)
    else
      keep(one.key, one.hit, one.state, one.after)
    end
  end
end

local request, position = 1, 1
local function go_on()
  while 2 * request <= #sizes do
    local size = short(sizes, request)
    if size == 1 then
      take_one(position)
    else
      take_several(position, size)
    end
    request, position = request + 1, position + size
  end
end

-- A key that holds something else spoils its own request, not the others of this call.
local fine, problem = pcall(go_on)
while not fine do
  if is_writing then -- the server is full, or cannot write: all requests of the call fail
    local text = type(problem) == 'table' and problem.err or tostring(problem)
    return redis.error_reply(string.match(text, '%u%u%u+ .*') or text) -- from its code on, whatever Lua put before it
  end
  local size = short(sizes, request)
  for spoiled = position, position + size - 1 do
    answers[spoiled] = pack(ROW, -1, 0, 0, 0, 0, 0, 0, 0)
  end
  request, position = request + 1, position + size
  fine, problem = pcall(go_on)
end
return pack('<i8', now) .. table.concat(answers)
