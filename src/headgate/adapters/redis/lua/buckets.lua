-- Token bucket and leaky bucket. Twins of headgate/core/algorithms/bucket.py,
-- token_bucket.py and leaky_bucket.py.
--
-- State: MessagePack, instant of the last admission, the level then, what was overdrawn then, and
-- (token bucket) what receipts have put back; without the last four where they are all 0. Amounts
-- are counted in shares there; here they are pairs (units, rest), a unit being `period` shares, so
-- that all stay exact: shares = units * period + rest, 0 <= rest < period.

local bucket = {}

function bucket.read(value)
  local at, units, rest, over, over_rest, credited, credited_rest = cmsgpack.unpack(value)
  check(at, units, rest)
  if not over and not credited_rest then
    return {at, units, rest, 0, 0, 0, 0}
  end
  check(over, over_rest, credited)
  check(credited_rest, 0, 0)
  return {at, units, rest, over, over_rest, credited, credited_rest}
end

function bucket.write(state)
  if state[4] == 0 and state[5] == 0 and state[6] == 0 and state[7] == 0 then
    return cmsgpack.pack(state[1], state[2], state[3])
  end
  return cmsgpack.pack(unpack(state, 1, 7))
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

-- The state itself, or, if the clock stepped back behind it, the same level as of now.
local function present(state, now)
  if state and state[1] > now then
    return {now, unpack(state, 2, 7)}
  end
  return state
end

-- The fullest the bucket can be: its capacity and, throttling, what may be taken in advance.
local function fullest(hit)
  if hit.algorithm == 3 and hit.max_delay > 0 then
    local units, rest = mul_div(hit.max_delay, hit.amount, hit.period)
    return hit.capacity + units, rest
  end
  return hit.capacity, 0
end

-- How much can be overdrawn beyond that.
local function most_overdrawn(hit)
  if LONGEST_WAIT * hit.amount / hit.period < 2 * MOST_COUNTED then -- above, the product is out of range
    return least(MOST_COUNTED, 0, mul_div(LONGEST_WAIT, hit.amount, hit.period))
  end
  return MOST_COUNTED, 0
end

-- What such a level amounts to under a limit: never more than it allows.
local function bounded(units, rest, over, over_rest, hit)
  units, rest = least(units, rest, fullest(hit))
  if over > 0 or over_rest > 0 then
    over, over_rest = least(over, over_rest, most_overdrawn(hit))
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
  local units, rest = bounded(state[2], state[3], state[4], state[5], hit)
  local drained, drained_rest = drained_in(now - state[1], units, hit)
  units, rest = minus(units, rest, drained, drained_rest, hit.period)
  if units < 0 then
    return 0, 0
  end
  return units, rest
end

-- The state of a bucket with so much in it, of which what it cannot hold is overdrawn.
local function filled(now, units, rest, hit, credited, credited_rest)
  local held, held_rest = least(units, rest, fullest(hit))
  local over, over_rest = minus(units, rest, held, held_rest, hit.period)
  over, over_rest = least(over, over_rest, most_overdrawn(hit))
  return {now, held, held_rest, over, over_rest, credited or 0, credited_rest or 0}
end

-- How long that much takes to drain, rounded up to a whole microsecond.
local function time_to_drain(units, rest, hit)
  local whole, over = mul_div(units, hit.period, hit.amount)
  return whole + math.ceil((over + rest) / hit.amount)
end

function bucket.creditable_until(stamp, hit)
  local units, rest = least(stamp[2], stamp[3], fullest(hit))
  return stamp[1] + time_to_drain(units, rest, hit)
end

function bucket.expires_at(state, hit)
  local units, rest = bounded(state[2], state[3], state[4], state[5], hit)
  return state[1] + time_to_drain(units, rest, hit)
end

function bucket.is_unused(state)
  for place = 2, 7 do
    if state[place] ~= 0 then
      return false
    end
  end
  return true
end

local token_bucket = setmetatable({}, {__index = bucket})

function token_bucket.decide(state, hit, now, cost)
  state = present(state, now)
  local units, rest = level(state, hit, now)
  local room = hit.capacity - units - cost -- less `rest`
  local delay = 0
  if room < 0 then
    delay = time_to_drain(-room, rest, hit)
  elseif room == 0 and rest > 0 then
    delay = time_to_drain(0, rest, hit)
  end
  if delay <= hit.max_delay and cost <= hit.capacity then
    local left = rest > 0 and room - 1 or room
    local credited, credited_rest = 0, 0
    if state then
      credited, credited_rest = state[6], state[7]
    end
    local after = cost > 0 and {now, units + cost, rest, 0, 0, credited, credited_rest} or state
    local reset_after = time_to_drain(units + cost, rest, hit)
    local stamped, stamped_rest = plus(units + cost, rest, credited, credited_rest, hit.period)
    return after, 1, math.max(0, left), reset_after, 0, delay, now, stamped, stamped_rest
  end
  local left = hit.capacity - units
  if rest > 0 then
    left = left - 1
  end
  local retry_after = cost <= hit.capacity and delay - hit.max_delay or NEVER
  return state, 0, math.max(0, left), time_to_drain(units, rest, hit), retry_after, 0, now, units, rest
end

function token_bucket.charge(state, hit, now, cost)
  local units, rest = level(present(state, now), hit, now)
  return filled(now, units + cost, rest, hit, state and state[6], state and state[7])
end

function token_bucket.give_back(state, hit, now, stamp, amount)
  if not state then
    return nil
  end
  local period = hit.period
  -- Not back yet: what was missing after the receipt, less what was credited since, but not
  -- less than the amount; of that, less what has been refilled since.
  local open, open_rest = minus(stamp[2], stamp[3], state[6], state[7], period)
  if less(open, open_rest, amount, 0) then
    open, open_rest = amount, 0
  end
  local refilled, refilled_rest = drained_in(math.max(0, now - stamp[1]), open, hit)
  local credit, credit_rest = minus(open, open_rest, refilled, refilled_rest, period)
  -- Nor more than is missing now, nor more than the amount.
  local missing, missing_rest = plus(state[2], state[3], state[4], state[5], period)
  local drained, drained_rest = drained_in(math.max(0, now - state[1]), missing, hit)
  missing, missing_rest = minus(missing, missing_rest, drained, drained_rest, period)
  credit, credit_rest = least(credit, credit_rest, missing, missing_rest)
  credit, credit_rest = least(credit, credit_rest, amount, 0)
  if credit < 0 or (credit == 0 and credit_rest == 0) then
    return state
  end
  -- First off what was overdrawn, then off the rest.
  local of_over, of_over_rest = least(credit, credit_rest, state[4], state[5])
  local over, over_rest = minus(state[4], state[5], of_over, of_over_rest, period)
  local of_held, of_held_rest = minus(credit, credit_rest, of_over, of_over_rest, period)
  local units, rest = minus(state[2], state[3], of_held, of_held_rest, period)
  local credited, credited_rest = plus(state[6], state[7], credit, credit_rest, period)
  return {state[1], units, rest, over, over_rest, credited, credited_rest}
end

-- If nobody came since, the bucket is simply as it was; no receipt of anybody has to know.
local function undone(state, hit, stamp, amount)
  if state and state[1] == stamp[1] and state[4] == 0 and state[5] == 0 then
    local units, rest = plus(state[2], state[3], state[6], state[7], hit.period)
    if units == stamp[2] and rest == stamp[3] then
      return {state[1], state[2] - amount, state[3], 0, 0, state[6], state[7]}
    end
  end
end

function token_bucket.undo(state, hit, now, stamp, amount)
  return undone(state, hit, stamp, amount) or token_bucket.give_back(state, hit, now, stamp, amount)
end

function token_bucket.expires_at(state, hit)
  local units, rest = state[2], state[3]
  if state[6] > 0 or state[7] > 0 then -- some receipt may still have to know what others put back
    units, rest = fullest(hit)
  end
  units, rest = bounded(units, rest, state[4], state[5], hit)
  return state[1] + time_to_drain(units, rest, hit)
end

local leaky_bucket = setmetatable({}, {__index = bucket})

function leaky_bucket.decide(state, hit, now, cost)
  state = present(state, now)
  local units, rest = level(state, hit, now)
  local room = hit.capacity - units - cost -- less `rest`
  local fits = room > 0 or (room == 0 and rest == 0)
  local delay = time_to_drain(units, rest, hit)
  if fits and delay <= hit.max_delay then
    local left = rest > 0 and room - 1 or room
    local reset_after = time_to_drain(units + cost, rest, hit)
    if reset_after > hit.max_delay then
      left = 0 -- whoever comes next would have to wait for too long
    end
    local after = cost > 0 and {now, units + cost, rest, 0, 0, 0, 0} or state
    return after, 1, left, reset_after, 0, delay, now, units + cost, rest
  end
  local left = hit.capacity - units
  if rest > 0 then
    left = left - 1
  end
  if delay > hit.max_delay then
    left = 0
  end
  local retry_after = NEVER
  if cost <= hit.capacity then
    retry_after = delay - hit.max_delay
    if not fits then
      retry_after = math.max(retry_after, time_to_drain(-room, rest, hit))
    end
  end
  return state, 0, math.max(0, left), delay, retry_after, 0, now, units, rest
end

function leaky_bucket.charge(state, hit, now, cost)
  local units, rest = level(present(state, now), hit, now)
  return filled(now, units + cost, rest, hit)
end

-- Whether two levels, each as of its own instant, run empty at the same one.
local function same_end(at, units, rest, other_at, other_units, other_rest, hit)
  if at > other_at then
    at, units, rest, other_at, other_units, other_rest = other_at, other_units, other_rest, at, units, rest
  end
  local drained, drained_rest = drained_in(other_at - at, units, hit)
  units, rest = minus(units, rest, drained, drained_rest, hit.period)
  return units == other_units and rest == other_rest
end

function leaky_bucket.give_back(state, hit, now, stamp, amount)
  if not state then
    return nil
  end
  local units, rest = plus(state[2], state[3], state[4], state[5], hit.period)
  if not same_end(state[1], units, rest, stamp[1], stamp[2], stamp[3], hit) then
    return state
  end
  local credit, credit_rest = level(present(state, now), hit, now)
  credit, credit_rest = least(credit, credit_rest, amount, 0)
  units, rest = minus(units, rest, credit, credit_rest, hit.period)
  return filled(state[1], units, rest, hit)
end

function leaky_bucket.undo(state, hit, now, stamp, amount)
  return undone(state, hit, stamp, amount) or leaky_bucket.give_back(state, hit, now, stamp, amount)
end

ALGORITHMS[3] = token_bucket
ALGORITHMS[4] = leaky_bucket
