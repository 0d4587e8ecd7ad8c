-- Fixed window. Twin of headgate/core/algorithms/fixed_window.py.
--
-- State: the start of the window plus the count in it, in digits (see prelude.lua), if the count is less
-- than what all starts are multiples of: the period, or a minute in a calendar. Otherwise MessagePack,
-- number of the window (calendar windows: its start), count in it.

local CALENDAR_STEP = 60000000

local function window(hit, now)
  if not hit.start then
    local start = now - now % hit.period
    return start, start + hit.period
  elseif now < hit.start then -- the caller's clock, which the bounds are from, is ahead
    return hit.previous, hit.start
  elseif now < hit.finish then
    return hit.start, hit.finish
  end
  return hit.finish, hit.next_finish
end

local fixed_window = {
  read = function(value, hit)
    if #value == DIGITS and is_digits(value) then
      local step = hit.start and CALENDAR_STEP or hit.period
      local count = value % step
      check(value - count, count, 0)
      return {value - count, count, step}
    end
    local number, count = unpack_message(value)
    check(number, count, 0)
    return {hit.start and number or number * hit.period, count}
  end,

  write = function(state, hit)
    local start, count, step = state[1], state[2], hit.start and CALENDAR_STEP or hit.period
    if count < step and start % step == 0 and is_worth_digits(start, count, hit) then
      return digits(start + count, hit)
    end
    return pack_message(hit.start and start or start / hit.period, count)
  end,

  decide = function(state, hit, now, cost)
    local start, finish = window(hit, now)
    local left_of_window, amount, count = finish - now, hit.amount, 0
    if state then
      count = state[2]
      if state[1] < start then
        count = 0
      elseif state[1] > start then -- the clock stepped back: what was counted counts now
        state = {start, count}
      end
    end
    local used = count + cost
    if used <= amount then
      local reset_after = used > 0 and left_of_window or 0
      local after = state
      if cost > 0 then
        after = {start, used}
        if state and state[1] == start and state[3] and used < state[3] then
          after.added = cost
        end
      end
      return after, 1, amount - used, reset_after, 0, 0, start, 0, 0
    end
    local left = math.max(0, amount - count)
    local retry_after = cost <= amount and left_of_window or NEVER
    return state, 0, left, count > 0 and left_of_window or 0, retry_after, 0, start, 0, 0
  end,

  charge = function(state, hit, now, cost)
    local start = window(hit, now)
    local count = (state and state[1] >= start) and state[2] or 0
    return {start, math.min(count + cost, MAX_COUNTED)}
  end,

  expires_at = function(state, hit)
    if not hit.start then
      return state[1] + hit.period
    end
    local _, finish = window(hit, state[1])
    return finish
  end,
}
ALGORITHMS[FIXED_WINDOW] = fixed_window

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

function fixed_window.creditable_until(stamp, hit)
  return fixed_window.expires_at(stamp, hit)
end

function fixed_window.give_back(state, hit, now, stamp, amount)
  if not state or state[1] ~= stamp[1] or window(hit, now) ~= stamp[1] then
    return state
  end
  return {state[1], math.max(0, state[2] - amount)}
end

function fixed_window.is_unused(state)
  return state[2] == 0
end
