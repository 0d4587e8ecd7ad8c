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

local given, least_ttl, only_peek = struct.unpack('<ddd', ARGV[1])
local now = read_clock(given)
local sizes, numbers = ARGV[2], ARGV[3]
local byte = string.byte

-- The number at a place of a row of '<I2'.
local function short(row, place)
  local low, high = byte(row, 2 * place - 1, 2 * place)
  return low + 256 * high
end

local kinds = {}
local function hit_at(position)
  local number = short(numbers, position)
  local hit = kinds[number]
  if not hit then
    hit = read_hit(ARGV[3 + number])
    kinds[number] = hit
  end
  return hit
end

-- Answers are collected as numbers, and packed in one piece at the end.
local answers, count = {now}, 1
local function answer(allowed, remaining, reset_after, retry_after, delay, s1, s2, s3)
  local at = count
  answers[at + 1], answers[at + 2], answers[at + 3], answers[at + 4] = allowed, remaining, reset_after, retry_after
  answers[at + 5], answers[at + 6], answers[at + 7], answers[at + 8] = delay, s1, s2, s3
  count = at + 8
end

-- Decides and answers one hit; a forced one is counted even past its limit.
local function decide(state, hit, cost)
  local algorithm = ALGORITHMS[hit.algorithm]
  local after, allowed, remaining, reset_after, retry_after, delay, s1, s2, s3 =
    algorithm.decide(state, hit, now, cost)
  if allowed == 0 and hit.forced and algorithm.charge then
    after, allowed, remaining, retry_after, delay = algorithm.charge(state, hit, now, cost), 1, 0, 0, 0
  end
  answer(allowed, remaining, reset_after, retry_after, delay, s1, s2, s3)
  return after, allowed == 1
end

local is_writing = false
-- Counts what was decided. A denied hit writes only if the clock stepped back.
local function keep(key, hit, state, after)
  if after ~= state and only_peek == 0 then
    is_writing = true
    save(key, hit, after, now, least_ttl)
    is_writing = false
  end
end

local function take_one(position)
  local key, hit = KEYS[position], hit_at(position)
  local state = load(key, hit)
  keep(key, hit, state, (decide(state, hit, hit.cost)))
end

local function take_several(first, size)
  local hits, beginning, allowed = {}, count, true
  for position = first, first + size - 1 do
    local one = {key = KEYS[position], hit = hit_at(position)}
    one.state = load(one.key, one.hit)
    one.after, one.allowed = decide(one.state, one.hit, one.hit.cost)
    hits[#hits + 1] = one
    allowed = allowed and one.allowed
  end
  if not allowed then
    for index, one in ipairs(hits) do
      if one.allowed then -- nothing is counted, so it is answered as it stands
        count = beginning + 8 * (index - 1)
        decide(one.state, one.hit, 0)
        one.after = one.state
      end
    end
    count = beginning + 8 * size
  end
  for _, one in ipairs(hits) do
    keep(one.key, one.hit, one.state, one.after)
  end
end

local request, position, beginning = 1, 1, 1
local function go_on()
  while 2 * request <= #sizes do
    local size = short(sizes, request)
    beginning = count
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
  if is_writing then -- the server is full, or in no state to write: that concerns everybody
    local text = type(problem) == 'table' and problem.err or tostring(problem)
    return redis.error_reply(string.match(text, '%u%u%u+ .*') or text) -- from its code on, whatever Lua put before it
  end
  count = beginning
  local size = short(sizes, request)
  for _ = 1, size do
    answer(-1, 0, 0, 0, 0, 0, 0, 0)
  end
  request, position = request + 1, position + size
  fine, problem = pcall(go_on)
end

local pieces = {}
for first = 1, count, 1000 do -- Lua hands over only so many values at once
  local last = math.min(count, first + 999)
  pieces[#pieces + 1] = struct.pack('<' .. string.rep('i8', last - first + 1), unpack(answers, first, last))
end
return table.concat(pieces)
