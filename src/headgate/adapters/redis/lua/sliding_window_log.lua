-- Sliding window log. Twin of headgate/core/algorithms/sliding_window_log.py.
--
-- State: one string, '<dd' index of the next (and oldest) place and number of places; then
-- the ring, one '<d' instant per place, 0 where it is empty. Places are read one by one and
-- written in one piece (two at the wrap), so that a large log costs little more than a small one.

local sliding_window_log = {}

local HEADER = 16
local SMALLEST = 16

-- A ring that is on the server: only its header is read at once.
function sliding_window_log.load(key)
  local header = call('GETRANGE', key, 0, HEADER - 1)
  if header == '' then
    return nil
  end
  local next_place, places = struct.unpack('<dd', header)
  check(next_place, places, places - next_place - 1)
  return {key = key, next = next_place, places = places}
end

-- The entry at a place counted from the oldest.
local function rank(ring, place)
  local index = (ring.next + place) % ring.places
  if ring.times then
    return ring.times[index + 1]
  end
  local at = HEADER + 8 * index
  local time = struct.unpack('<d', call('GETRANGE', ring.key, at, at + 7))
  check(time, 0, 0)
  return time
end

local function newest(ring)
  return rank(ring, ring.places - 1)
end

-- All entries in a table, oldest first.
local function in_order(ring)
  local times = {}
  if ring.times then
    for place = 0, ring.places - 1 do
      times[place + 1] = rank(ring, place)
    end
    return times
  end
  local raw = call('GETRANGE', ring.key, HEADER, HEADER + 8 * ring.places - 1)
  for place = 0, ring.places - 1 do
    local index = (ring.next + place) % ring.places
    local time = struct.unpack('<d', raw, 8 * index + 1)
    check(time, 0, 0)
    times[place + 1] = time
  end
  return times
end

-- A ring held in a table, which save() writes as a whole. `times` are oldest first.
local function ring_of(times, places)
  local all = {}
  local empty = places - #times
  for place = 1, places do
    if place <= empty then
      all[place] = 0
    else
      all[place] = times[place - empty]
    end
  end
  return {times = all, next = 0, places = places}
end

-- How many entries are later than `cutoff`: the ring is sorted from the oldest on.
local function count_since(ring, cutoff)
  local low, high = 0, ring.places
  while low < high do
    local middle = math.floor((low + high) / 2)
    if rank(ring, middle) > cutoff then
      high = middle
    else
      low = middle + 1
    end
  end
  return ring.places - low
end

-- What was admitted later than now, after the clock stepped back, was admitted now.
local function clamped(ring, now)
  local times = in_order(ring)
  for place, time in ipairs(times) do
    times[place] = math.min(time, now)
  end
  return ring_of(times, ring.places)
end

function sliding_window_log.decide(state, hit, now, cost)
  local amount, period = hit.amount, hit.period
  if not state then
    if cost <= amount then
      local after = cost > 0 and {admit = cost, now = now, live = 0} or nil
      return after, 1, amount - cost, cost > 0 and period or 0, 0, 0, now, 0, 0
    end
    return nil, 0, amount, 0, NEVER, 0, now, 0, 0
  end
  local last = newest(state)
  if last > now then
    state = clamped(state, now)
    last = now
  end
  local live = count_since(state, math.max(0, now - period))
  if live + cost <= amount then
    local latest = cost > 0 and now or last
    local reset_after = latest > 0 and math.max(0, latest + period - now) or 0
    local after = cost > 0 and {admit = cost, now = now, live = live, ring = state} or state
    return after, 1, amount - live - cost, reset_after, 0, 0, now, 0, 0
  end
  local reset_after = live > 0 and last + period - now or 0
  local retry_after = NEVER
  if cost <= amount then
    -- So many of the oldest in view must leave it; the last of those says when.
    local leaving = live + cost - amount
    retry_after = rank(state, state.places - live + leaving - 1) + period - now
  end
  return state, 0, math.max(0, amount - live), reset_after, retry_after, 0, now, 0, 0
end

function sliding_window_log.charge(state, hit, now, cost)
  local live = 0
  if state and newest(state) > now then
    state = clamped(state, now)
    live = state.places
  elseif state then
    live = count_since(state, math.max(0, now - hit.period))
  end
  -- Past the limit only the newest `amount` matter: the older leave first.
  return {admit = math.min(cost, hit.amount), now = now, live = live, ring = state}
end

local function resized(ring, places)
  local times = in_order(ring)
  local kept = {}
  for place = math.max(1, #times - places + 1), #times do
    kept[#kept + 1] = times[place]
  end
  return ring_of(kept, places)
end

-- Writes a whole ring.
local function write_whole(key, ring)
  local parts = {struct.pack('<dd', ring.next, ring.places)}
  for place = 1, ring.places do
    parts[place + 1] = struct.pack('<d', ring.times[place])
  end
  call('SET', key, table.concat(parts))
end

-- Writes what decide, charge or give_back returned.
function sliding_window_log.save(key, state, hit)
  local ring, cost = state, 0
  if state.admit then
    ring, cost = state.ring, state.admit
    if not ring then
      ring = ring_of({}, math.min(hit.amount, math.max(SMALLEST, cost)))
    elseif ring.places > hit.amount then
      ring = resized(ring, hit.amount)
    elseif state.live + cost > ring.places then
      ring = resized(ring, math.min(hit.amount, math.max(2 * ring.places, state.live + cost)))
    end
  end
  if ring.times then
    for place = 0, cost - 1 do
      ring.times[(ring.next + place) % ring.places + 1] = state.now
    end
    ring.next = (ring.next + cost) % ring.places
    write_whole(key, ring)
    return
  end
  local until_end = math.min(cost, ring.places - ring.next)
  if until_end > 0 then
    call('SETRANGE', key, HEADER + 8 * ring.next, string.rep(struct.pack('<d', state.now), until_end))
  end
  if cost > until_end then
    call('SETRANGE', key, HEADER, string.rep(struct.pack('<d', state.now), cost - until_end))
  end
  call('SETRANGE', key, 0, struct.pack('<d', (ring.next + cost) % ring.places))
end

function sliding_window_log.expires_at(state, hit)
  if state.admit and state.admit > 0 then
    return state.now + hit.period
  end
  local ring = state.admit and state.ring or state
  return (ring and newest(ring) or 0) + hit.period
end

ALGORITHMS[SLIDING_WINDOW_LOG] = sliding_window_log

-- What follows only giving back needs; scripts.py leaves it out where hits are taken.

function sliding_window_log.creditable_until(stamp, hit)
  return stamp[1] + hit.period
end

function sliding_window_log.give_back(state, hit, now, stamp, amount)
  if not state or now >= sliding_window_log.creditable_until(stamp, hit) then
    return state
  end
  local kept, taken_out = {}, 0
  for _, time in ipairs(in_order(state)) do
    if time == stamp[1] and taken_out < amount then
      taken_out = taken_out + 1
    else
      kept[#kept + 1] = time
    end
  end
  if taken_out == 0 then
    return state
  end
  return ring_of(kept, state.places)
end

function sliding_window_log.is_unused(state)
  return newest(state) == 0
end
