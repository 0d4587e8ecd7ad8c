-- What all algorithms share: exact arithmetic, packing, and the meter.
--
-- Numbers in Lua are doubles, exact for whole numbers below 2^53. Instants are
-- microseconds (about 2^51 today), amounts at most 10^12 (2^40), periods at most ten
-- years (2^49), so a single product may not fit; mul_div works on such products exactly.

local EXACT = 9007199254740992 -- 2^53
local LONGEST_WAIT, MOST_COUNTED = 50 * 366 * 86400000000, 1000000000000000 -- see core/units.py
local NEVER = -1
local floor = math.floor

-- What a counter holds is whole numbers below 2^53. Anything else is not ours and spoils its request;
-- counted with, an infinite number would keep mul_div busy for ever.
local function check(one, two, three)
  if not (one >= 0 and one < EXACT and one % 1 == 0 and two >= 0 and two < EXACT and two % 1 == 0
      and three >= 0 and three < EXACT and three % 1 == 0) then
    error('not a counter')
  end
end

-- floor(a * b / c) and the remainder, for whole a, b >= 0 and c > 0 whose quotient is below 2^53.
local function mul_div(a, b, c)
  local product = a * b
  if product < EXACT then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Long division, the digits of a in a base so small that every step stays exact.
  local base = 2
  while (b + c) * base * 4 < EXACT do
    base = base * 2
  end
  local place = 1
  while place * base <= a do
    place = place * base
  end
  local quotient, rest = 0, 0
  while place >= 1 do
    local digit = floor(a / place)
    a = a - digit * place
    local step = rest * base + digit * b
    rest = step % c
    quotient = quotient * base + (step - rest) / c
    place = place / base
  end
  return quotient, rest
end

-- ceil(a * b / c)
local function mul_div_up(a, b, c)
  local quotient, rest = mul_div(a, b, c)
  if rest > 0 then
    return quotient + 1
  end
  return quotient
end

-- The parameters of one hit, as the client packs them (packed_hit in scripts.py): algorithm,
-- cost, amount, period, capacity, max_delay; for a calendar window its bounds; for slots
-- their ttl and holder. 16 more than the algorithm means that the hit is forced.
local CONCURRENCY, CALENDAR, FORCED = 5, 6, 16

local function read_hit(packed)
  local hit, at = {}, 0
  hit.algorithm, hit.cost, hit.amount, hit.period, hit.capacity, hit.max_delay, at = struct.unpack('<dddddd', packed)
  if hit.algorithm >= FORCED then
    hit.algorithm = hit.algorithm - FORCED
    hit.forced = true
  end
  if hit.algorithm == CALENDAR then -- a fixed window with other bounds
    hit.algorithm = 0
    hit.previous, hit.start, hit.finish, hit.next_finish, at = struct.unpack('<dddd', packed, at)
  elseif hit.algorithm == CONCURRENCY then
    hit.ttl, at = struct.unpack('<d', packed, at)
    hit.holder = string.sub(packed, at)
  end
  return hit
end

-- The algorithms by their numbers. Defining them takes time in every call, so a script is put
-- together of those only that its hits need; each file enters its own.
local ALGORITHMS = {}
