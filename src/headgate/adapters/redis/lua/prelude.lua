-- What all algorithms share: the numbers they count with, and the meter.

local EXACT = 9007199254740992 -- 2^53
local MAX_WAIT, MAX_COUNTED = 50 * 366 * 86400000000, 1000000000000000 -- see core/units.py
local NEVER = -1
local call, pack_message, unpack_message = redis.call, cmsgpack.pack, cmsgpack.unpack

-- What a counter holds is whole numbers below 2^53. Anything else is not ours and spoils its request;
-- counted with, an infinite number would keep mul_div busy for ever.
local function check(one, two, three)
  if not (one % 1 == 0 and two % 1 == 0 and three % 1 == 0 -- which nothing infinite is
      and one >= 0 and two >= 0 and three >= 0 and one + two + three < EXACT) then
    error('not a counter')
  end
end

-- States that fit are written as 16 or 19 digits, which Redis keeps as an integer in half of the memory of
-- the shortest string. Valkey does so only after an INCRBY; until then a few bytes of MessagePack are less.
-- The two cannot be confused: MessagePack of such a length begins with no digit, but for instants in 1970.
local DIGITS, MIN_DIGITS, NINE = 16, 1000000000000000, 57
local SETS_INTEGERS = not redis.SERVER_NAME -- which Redis has not
local byte, find, format, sub = string.byte, string.find, string.format, string.sub

local function is_digits(value)
  if byte(value) > NINE then
    return false
  elseif find(value, '%D') then -- Lua takes '0x1' and ' 1' for numbers, INCRBY does not
    error('not a counter')
  end
  return true
end

local function is_worth_digits(start, count, hit)
  return start >= MIN_DIGITS and (SETS_INTEGERS or count > hit.cost)
end

-- A number in digits. Hits of one kind often write the same one.
local function digits(number, hit)
  if hit.number ~= number then
    hit.number, hit.digits = number, format('%d', number)
  end
  return hit.digits
end

-- The algorithms by their codes. Defining them takes time in every call, so a script is put
-- together of those only that its hits need; each file enters its own.
local FIXED_WINDOW, SLIDING_WINDOW_COUNTER, SLIDING_WINDOW_LOG = 0, 1, 2
local TOKEN_BUCKET, LEAKY_BUCKET, CONCURRENCY = 3, 4, 5
local ALGORITHMS = {}

-- The parameters of one hit, as the client packs them (packed_hit in scripts.py): the algorithm's
-- code, cost, amount, period, capacity, max_delay; for a calendar window, which has a code of its
-- own, its bounds; for slots their ttl and holder. 16 more than the code means that the hit is forced.
local CALENDAR, FORCED = 6, 16

local function read_hit(packed)
  local code, cost, amount, period, capacity, max_delay, at = struct.unpack('<dddddd', packed)
  local hit = {cost = cost, amount = amount, period = period, capacity = capacity, max_delay = max_delay}
  if code >= FORCED then
    code, hit.forced = code - FORCED, true
  end
  if code == CALENDAR then -- a fixed window with other bounds
    code = FIXED_WINDOW
    hit.previous, hit.start, hit.finish, hit.next_finish = struct.unpack('<dddd', packed, at)
  elseif code == CONCURRENCY then
    hit.ttl, at = struct.unpack('<d', packed, at)
    hit.holder = string.sub(packed, at)
  end
  hit.code, hit.algorithm = code, ALGORITHMS[code]
  return hit
end
