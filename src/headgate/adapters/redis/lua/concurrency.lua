-- Concurrency slots. Twin of headgate/core/algorithms/concurrency.py.
--
-- State: a MessagePack map, holder -> {since, ttl, slots}.

local concurrency = {}

function concurrency.read(value)
  local state = cmsgpack.unpack(value)
  for _, hold in pairs(state) do
    check(hold[1], hold[2], hold[3])
  end
  return state
end

function concurrency.write(state)
  return cmsgpack.pack(state)
end

local function expiry(hold)
  return hold[1] + hold[2]
end

-- The state itself, or, if the clock stepped back, with every hold that lies ahead beginning now.
local function holds_present(state, now)
  for _, hold in pairs(state or {}) do
    if hold[1] > now then
      local moved = {}
      for name, each in pairs(state) do
        moved[name] = {math.min(each[1], now), each[2], each[3]}
      end
      return moved
    end
  end
  return state
end

-- When, one expiry after the other, `cost` slots have become free.
local function until_free(others, free, cost)
  local holds = {}
  for _, hold in pairs(others) do
    holds[#holds + 1] = hold
  end
  table.sort(holds, function(one, other) return expiry(one) < expiry(other) end)
  local ends, now_free = 0, 0
  for _, hold in ipairs(holds) do
    if free + now_free >= cost then
      break
    end
    ends = expiry(hold)
    now_free = now_free + hold[3]
  end
  return ends
end

function concurrency.decide(state, hit, now, cost)
  state = holds_present(state, now)
  local live, left, own = {}, hit.amount, 0
  for name, hold in pairs(state or {}) do
    if expiry(hold) > now then
      left = left - hold[3]
      if cost > 0 and name == hit.holder then -- a cost of 0 is a look, and renews nothing
        own = hold[3]
      else
        live[name] = hold
      end
    end
  end
  local allowed, after, retry_after = 0, state, 0
  if cost <= left + own then
    allowed = 1
    left = left + own - cost
    if cost > 0 then
      after = live
      after[hit.holder] = {now, hit.ttl, cost}
    end
  elseif cost <= hit.amount then
    retry_after = until_free(live, left + own, cost) - now
  else
    retry_after = NEVER
  end
  local last = now
  for _, hold in pairs(after or {}) do
    last = math.max(last, expiry(hold))
  end
  return after, allowed, math.max(0, left), last - now, retry_after, 0, 0, 0, 0
end

function concurrency.give_back(state, hit)
  if not state or not state[hit.holder] then
    return state
  end
  local others = {}
  for name, hold in pairs(state) do
    if name ~= hit.holder then
      others[name] = hold
    end
  end
  return others
end

function concurrency.expires_at(state)
  local last = 0
  for _, hold in pairs(state) do
    last = math.max(last, expiry(hold))
  end
  return last
end

ALGORITHMS[CONCURRENCY] = concurrency
