-- Leaky bucket. Twin of headgate/core/algorithms/leaky_bucket.py; its state is in bucket.lua.

local leaky_bucket = {
  read = read_bucket,
  write = write_bucket,

  decide = function(state, hit, now, cost)
    state = present(state, now)
    local units, rest = level(state, hit, now)
    local room = hit.capacity - units - cost -- less `rest`
    local fits = room > 0 or (room == 0 and rest == 0)
    local delay = time_to_drain(units, rest, hit)
    if fits and delay <= hit.max_delay then
      local left = rest > 0 and room - 1 or room
      local reset_after = time_to_drain(units + cost, rest, hit)
      if reset_after > hit.max_delay then
        left = 0 -- the next request would have to wait for too long
      end
      local after = cost > 0 and {now, units + cost, rest, 0, 0, 0, 0, now + reset_after} or state
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
  end,

  charge = function(state, hit, now, cost)
    local units, rest = level(present(state, now), hit, now)
    return filled(now, units + cost, rest, hit)
  end,

  expires_at = function(state, hit)
    if state[8] then -- decide has just worked it out
      return state[8]
    end
    local units, rest = bounded(state[2], state[3], state[4], state[5], hit)
    return state[1] + time_to_drain(units, rest, hit)
  end,
}
ALGORITHMS[LEAKY_BUCKET] = leaky_bucket

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

leaky_bucket.creditable_until = bucket_creditable_until
leaky_bucket.is_unused = bucket_is_unused

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
