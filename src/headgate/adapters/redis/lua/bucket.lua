-- What the two buckets share. Twin of headgate/core/algorithms/bucket.py.
--
-- State: MessagePack, instant of the last admission, the level then, what was overdrawn then, and
-- (token bucket) what receipts have put back; without the last four where they are all 0. Amounts
-- are counted in shares there; here they are pairs (units, rest), a unit being `period` shares, so
-- that all stay exact: shares = units * period + rest, 0 <= rest < period.
-- In Redis, a bucket that was empty before its last admission, as of those who come seldom, is 19 digits
-- instead (see prelude.lua): 16 the instant, 3 the units.
local UNIT_DIGITS, MOST_UNITS = 3, 999

local function read_bucket(value)
  if #value == DIGITS + UNIT_DIGITS and is_digits(value) then
    local at, units = sub(value, 1, DIGITS) + 0, sub(value, DIGITS + 1) + 0
    check(at, units, 0)
    return {at, units, 0, 0, 0, 0, 0}
  end
  local at, units, rest, over, over_rest, credited, credited_rest = unpack_message(value)
  check(at, units, rest)
  if not over and not credited_rest then
    return {at, units, rest, 0, 0, 0, 0}
  end
  check(over, over_rest, credited)
  check(credited_rest, 0, 0)
  return {at, units, rest, over, over_rest, credited, credited_rest}
end

local function write_bucket(state, hit)
  if state[4] == 0 and state[5] == 0 and state[6] == 0 and state[7] == 0 then
    local at, units, rest = state[1], state[2], state[3]
    if SETS_INTEGERS and rest == 0 and units <= MOST_UNITS and at >= MIN_DIGITS then
      if hit.number ~= at or hit.units ~= units then
        hit.number, hit.units, hit.digits = at, units, format('%d%03d', at, units)
      end
      return hit.digits
    end
    return pack_message(at, units, rest)
  end
  return pack_message(unpack(state, 1, 7))
end

-- Pairs: whether one is less, the lesser of both, one minus other, one plus other.
local function less(one, one_rest, other, other_rest)
  return one < other or (one == other and one_rest < other_rest)
end

local function least(one, one_rest, other, other_rest)
  if less(other, other_rest, one, one_rest) then
    return other, other_rest
  end
  return one, one_rest
end

local function minus(one, one_rest, other, other_rest, period)
  local units, rest = one - other, one_rest - other_rest
  if rest < 0 then
    return units - 1, rest + period
  end
  return units, rest
end

local function plus(one, one_rest, other, other_rest, period)
  local units, rest = one + other, one_rest + other_rest
  if rest >= period then
    return units + 1, rest - period
  end
  return units, rest
end

-- The state itself, or, if the clock stepped back to before it, the same level as of now.
local function present(state, now)
  if state and state[1] > now then
    return {now, unpack(state, 2, 7)}
  end
  return state
end

-- The fullest the bucket can be: its capacity and, throttling, what may be taken in advance.
local function max_level(hit)
  if hit.code == TOKEN_BUCKET and hit.max_delay > 0 then
    local units, rest = mul_div(hit.max_delay, hit.amount, hit.period)
    return hit.capacity + units, rest
  end
  return hit.capacity, 0
end

-- How much can be overdrawn beyond that.
local function max_overdraft(hit)
  if MAX_WAIT * hit.amount / hit.period < 2 * MAX_COUNTED then -- above, the product is out of range
    return least(MAX_COUNTED, 0, mul_div(MAX_WAIT, hit.amount, hit.period))
  end
  return MAX_COUNTED, 0
end

-- What such a level amounts to under a limit: never more than it allows.
local function bounded(units, rest, over, over_rest, hit)
  if units >= hit.capacity then -- below, it is less than the fullest for certain
    units, rest = least(units, rest, max_level(hit))
  end
  if over > 0 or over_rest > 0 then
    over, over_rest = least(over, over_rest, max_overdraft(hit))
    return plus(units, rest, over, over_rest, hit.period)
  end
  return units, rest
end

-- How much drains in a span, at most a little more than `most` units: the exact product for
-- a longer span would be out of range, and nothing is left then anyway.
local function drained_in(span, most, hit)
  if span * hit.amount / hit.period >= most + 2 then
    return most + 2, 0
  end
  return mul_div(span, hit.amount, hit.period)
end

-- How much is in the bucket now.
local function level(state, hit, now)
  if not state then
    return 0, 0
  end
  local span, over, over_rest = now - state[1], state[4], state[5]
  if over == 0 and over_rest == 0 and span * hit.amount / hit.period >= state[2] + 2 then
    return 0, 0 -- long since, as drained_in would say
  end
  local units, rest = bounded(state[2], state[3], over, over_rest, hit)
  local drained, drained_rest = drained_in(span, units, hit)
  units, rest = minus(units, rest, drained, drained_rest, hit.period)
  if units < 0 then
    return 0, 0
  end
  return units, rest
end

-- The state of a bucket with so much in it, of which what it cannot hold is overdrawn.
local function filled(now, units, rest, hit, credited, credited_rest)
  local held, held_rest = least(units, rest, max_level(hit))
  local over, over_rest = minus(units, rest, held, held_rest, hit.period)
  over, over_rest = least(over, over_rest, max_overdraft(hit))
  return {now, held, held_rest, over, over_rest, credited or 0, credited_rest or 0}
end

-- How long that much takes to drain, rounded up to a whole microsecond.
local function time_to_drain(units, rest, hit)
  local amount = hit.amount
  local shares = units * hit.period + rest
  if shares < EXACT then
    local over = shares % amount
    local whole = (shares - over) / amount
    return over > 0 and whole + 1 or whole
  end
  local whole, over = mul_div(units, hit.period, amount)
  return whole + math.ceil((over + rest) / amount)
end

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

-- When everything that was in the bucket after a receipt has drained.
local function bucket_creditable_until(stamp, hit)
  local units, rest = least(stamp[2], stamp[3], max_level(hit))
  return stamp[1] + time_to_drain(units, rest, hit)
end

local function bucket_is_unused(state)
  for index = 2, 7 do
    if state[index] ~= 0 then
      return false
    end
  end
  return true
end

-- If nothing was counted since the stamp, the bucket is again as it was before; no other receipt is affected.
local function undone(state, hit, stamp, amount)
  if state and state[1] == stamp[1] and state[4] == 0 and state[5] == 0 then
    local units, rest = plus(state[2], state[3], state[6], state[7], hit.period)
    if units == stamp[2] and rest == stamp[3] then
      return {state[1], state[2] - amount, state[3], 0, 0, state[6], state[7]}
    end
  end
end
