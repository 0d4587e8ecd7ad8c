-- Sliding window counter. Twin of headgate/core/algorithms/sliding_window_counter.py.
--
-- State: start of this window + count in it * base + count in the window before, in digits (see prelude.lua),
-- if both counts are less than the base, which is the root of the period: all starts are multiples of
-- that. Otherwise MessagePack, number of this window, count in it, count in the window before.

local function base_of(hit)
  return math.floor(math.sqrt(hit.period))
end

-- The least elapsed at which floor(count * (period - elapsed) / period) <= most.
local function faded(count, most, period)
  if count <= most then
    return 0
  end
  return period + 1 - mul_div_up(most + 1, period, count)
end

-- The wait until no more than `most` is in view, if nothing is added.
local function wait_until(previous, current, most, period, elapsed)
  if current <= most then
    return math.max(0, faded(previous, most - current, period) - elapsed)
  end
  return period - elapsed + faded(current, most, period)
end

-- The counts of the window that begins at `start` and of the one before it.
local function counts(state, hit, start)
  if not state then
    return 0, 0
  elseif state[1] == start then
    return state[2], state[3]
  elseif state[1] == start - hit.period then
    return 0, state[2]
  elseif state[1] > start then -- the clock stepped back: what was counted counts now
    return math.min(hit.amount, state[2] + state[3]), 0
  end
  return 0, 0
end

local sliding_window_counter = {
  read = function(value, hit)
    if #value == DIGITS and is_digits(value) then
      local both, base = value % hit.period, base_of(hit)
      local previous = both % base
      check(value - both, both, previous)
      return {value - both, (both - previous) / base, previous, base}
    end
    local number, current, previous = unpack_message(value)
    check(number, current, previous)
    return {number * hit.period, current, previous}
  end,

  write = function(state, hit)
    local start, current, previous, base = state[1], state[2], state[3], base_of(hit)
    if current < base and previous < base and is_worth_digits(start, current, hit) then
      return digits(start + current * base + previous, hit)
    end
    return pack_message(start / hit.period, current, previous)
  end,

  decide = function(state, hit, now, cost)
    local period, amount = hit.period, hit.amount
    local elapsed = now % period
    local start = now - elapsed
    local current, previous = counts(state, hit, start)
    if state and state[1] > start then
      state = {start, current, previous}
    end
    local base = mul_div(previous, period - elapsed, period) + current
    local used = base + cost
    if used <= amount then
      local reset_after = wait_until(previous, current + cost, 0, period, elapsed)
      local after = state
      if cost > 0 then
        after = {start, current + cost, previous}
        if state and state[4] and state[1] == start and current + cost < state[4] then
          after.added = cost * state[4]
        end
      end
      return after, 1, amount - used, reset_after, 0, 0, start, 0, 0
    end
    local left = math.max(0, amount - base)
    local retry_after = NEVER
    if cost <= amount then
      retry_after = wait_until(previous, current, amount - cost, period, elapsed)
    end
    return state, 0, left, wait_until(previous, current, 0, period, elapsed), retry_after, 0, start, 0, 0
  end,

  charge = function(state, hit, now, cost)
    local start = now - now % hit.period
    local current, previous = counts(state, hit, start)
    return {start, math.min(current + cost, MAX_COUNTED), previous}
  end,

  expires_at = function(state, hit)
    return state[1] + 2 * hit.period
  end,
}
ALGORITHMS[SLIDING_WINDOW_COUNTER] = sliding_window_counter

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

function sliding_window_counter.creditable_until(stamp, hit)
  return stamp[1] + 2 * hit.period
end

function sliding_window_counter.give_back(state, hit, now, stamp, amount)
  if not state or now >= sliding_window_counter.creditable_until(stamp, hit) then
    return state
  elseif state[1] == stamp[1] then
    return {state[1], math.max(0, state[2] - amount), state[3]}
  elseif state[1] == stamp[1] + hit.period then
    return {state[1], state[2], math.max(0, state[3] - amount)}
  end
  return state
end

function sliding_window_counter.is_unused(state)
  return state[2] == 0 and state[3] == 0
end
