-- Concurrency slots. Twin of headgate/core/algorithms/concurrency.py.
--
-- State: one MessagePack array, for each hold its holder, since, ttl and slots, one after the
-- other: a table for each hold would cost three times as much.

-- The state itself, or, if the clock stepped back, with every hold that lies ahead beginning now.
local function holds_present(state, now)
  for since = 2, #state, 4 do
    if state[since] > now then
      local moved = {}
      for place = 1, #state do
        moved[place] = place % 4 == 2 and math.min(state[place], now) or state[place]
      end
      return moved
    end
  end
  return state
end

-- When, one expiry after the other, `cost` slots have become free.
local function until_free(others, free, cost)
  local expiries, slots = {}, {}
  for at = 1, #others, 4 do
    local expiry = others[at + 1] + others[at + 2]
    if not slots[expiry] then
      expiries[#expiries + 1] = expiry
    end
    slots[expiry] = (slots[expiry] or 0) + others[at + 3]
  end
  table.sort(expiries)
  local ends, now_free = 0, 0
  for _, expiry in ipairs(expiries) do
    if free + now_free >= cost then
      break
    end
    ends = expiry
    now_free = now_free + slots[expiry]
  end
  return ends
end

local function last_expiry(state, last)
  for at = 1, #state, 4 do
    local expiry = state[at + 1] + state[at + 2]
    if expiry > last then
      last = expiry
    end
  end
  return last
end

local concurrency = {
  read = function(value)
    local state = unpack_message(value)
    check(#state / 4 - 1, 0, 0)
    for at = 1, #state, 4 do
      check(state[at + 1], state[at + 2], state[at + 3])
    end
    return state
  end,

  write = function(state)
    return pack_message(state)
  end,

  decide = function(state, hit, now, cost)
    state = state and holds_present(state, now)
    local live, size, left, own, own_since, own_ttl = {}, 0, hit.amount, 0, 0, 0
    for at = 1, state and #state or 0, 4 do
      local holder, since, ttl, slots = state[at], state[at + 1], state[at + 2], state[at + 3]
      if since + ttl > now then
        left = left - slots
        if cost > 0 and holder == hit.holder then -- a cost of 0 is a look, and renews nothing
          own, own_since, own_ttl = slots, since, ttl
        else
          live[size + 1], live[size + 2], live[size + 3], live[size + 4] = holder, since, ttl, slots
          size = size + 4
        end
      end
    end
    local allowed, after, retry_after = 0, state, 0
    if cost <= left + own then
      allowed = 1
      left = left + own - cost
      if cost > 0 then
        after = live
        after[size + 1], after[size + 2], after[size + 3], after[size + 4] = hit.holder, now, hit.ttl, cost
      end
    elseif cost <= hit.amount then
      retry_after = until_free(live, left + own, cost) - now
    else
      retry_after = NEVER
    end
    local reset_after = after and last_expiry(after, now) - now or 0
    return after, allowed, math.max(0, left), reset_after, retry_after, 0, own_since, own_ttl, own
  end,

  expires_at = function(state)
    return last_expiry(state, 0)
  end,
}
ALGORITHMS[CONCURRENCY] = concurrency

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

function concurrency.give_back(state, hit)
  local others, found = {}, false
  for at = 1, state and #state or 0, 4 do
    if state[at] == hit.holder then
      found = true
    else
      local size = #others
      for place = 0, 3 do
        others[size + place + 1] = state[at + place]
      end
    end
  end
  if not found then
    return state
  end
  return next(others) and others
end

-- A renewal leaves its holder what it had before; its stamp is since, ttl and slots.
function concurrency.undo(state, hit, now, stamp)
  local others = concurrency.give_back(state, hit)
  if stamp[3] == 0 or others == state then
    return others
  end
  others = others or {}
  local size = #others
  others[size + 1], others[size + 2], others[size + 3], others[size + 4] = hit.holder, stamp[1], stamp[2], stamp[3]
  return others
end
