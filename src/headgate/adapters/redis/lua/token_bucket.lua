-- Token bucket. Twin of headgate/core/algorithms/token_bucket.py; its state is in bucket.lua.

local token_bucket = {
  read = read_bucket,
  write = write_bucket,

  decide = function(state, hit, now, cost)
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
      local reset_after = time_to_drain(units + cost, rest, hit)
      local after = state
      if cost > 0 then
        local ends = credited == 0 and credited_rest == 0 and now + reset_after
        after = {now, units + cost, rest, 0, 0, credited, credited_rest, ends}
      end
      local stamped, stamped_rest = plus(units + cost, rest, credited, credited_rest, hit.period)
      return after, 1, math.max(0, left), reset_after, 0, delay, now, stamped, stamped_rest
    end
    local left = hit.capacity - units
    if rest > 0 then
      left = left - 1
    end
    local retry_after = cost <= hit.capacity and delay - hit.max_delay or NEVER
    return state, 0, math.max(0, left), time_to_drain(units, rest, hit), retry_after, 0, now, units, rest
  end,

  charge = function(state, hit, now, cost)
    local units, rest = level(present(state, now), hit, now)
    return filled(now, units + cost, rest, hit, state and state[6], state and state[7])
  end,

  expires_at = function(state, hit)
    if state[8] then -- decide has just worked it out
      return state[8]
    end
    local units, rest = state[2], state[3]
    if state[6] > 0 or state[7] > 0 then -- some receipt may still have to know what others put back
      units, rest = max_level(hit)
    end
    units, rest = bounded(units, rest, state[4], state[5], hit)
    return state[1] + time_to_drain(units, rest, hit)
  end,
}
ALGORITHMS[TOKEN_BUCKET] = token_bucket

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

token_bucket.creditable_until = bucket_creditable_until
token_bucket.is_unused = bucket_is_unused

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

function token_bucket.undo(state, hit, now, stamp, amount)
  return undone(state, hit, stamp, amount) or token_bucket.give_back(state, hit, now, stamp, amount)
end
