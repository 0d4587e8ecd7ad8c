-- Fixed window. Twin of headgate/core/algorithms/fixed_window.py.
--
-- State: MessagePack, number of the window (calendar windows: its start), count in it.

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
    local number, count = unpack_message(value)
    check(number, count, 0)
    return {hit.start and number or number * hit.period, count}
  end,

  write = function(state, hit)
    return pack_message(hit.start and state[1] or state[1] / hit.period, state[2])
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
      return cost > 0 and {start, used} or state, 1, amount - used, reset_after, 0, 0, start, 0, 0
    end
    local left = math.max(0, amount - count)
    local retry_after = cost <= amount and left_of_window or NEVER
    return state, 0, left, count > 0 and left_of_window or 0, retry_after, 0, start, 0, 0
  end,

  charge = function(state, hit, now, cost)
    local start = window(hit, now)
    local count = (state and state[1] >= start) and state[2] or 0
    return {start, math.min(count + cost, MOST_COUNTED)}
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
