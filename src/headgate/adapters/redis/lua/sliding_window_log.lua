-- Sliding window log. Twin of headgate/core/algorithms/sliding_window_log.py.
--
-- State: one string. First '<BI3I3I3d': the width of a place in bytes, the index of the next place, the
-- number of places, how many instants are held (the newest ones), and the newest instant in full. Then
-- the ring, the lowest bytes of one instant per place. All that is held is less than 256^width
-- microseconds older than the newest, so those bytes are enough: 3 for 16 seconds, 4 for 71 minutes, 5
-- for 12 days. What no longer fits is written anew with a larger width. Places are read one by one and
-- written in one piece (two at the wrap), so that a large log costs little more than a small one.

local sliding_window_log = {}

local HEADER, HEADER_SIZE = '<BI3I3I3d', 18
local MIN_SIZE = 16
local PLACE, SPAN = {}, {} -- by width
for width = 3, 7 do
  PLACE[width], SPAN[width] = '<I' .. width, 256 ^ width
end
-- Widening a ring takes half a microsecond per place, so a large one has from the first what its period needs.
local LARGE = 1024

-- A ring held in a table, which save() writes as a whole. `times` are oldest first.
local function ring_of(times, size)
  return {times = times, size = size, held = #times, newest = times[#times] or 0}
end

-- The form of old: '<dd' index of the next (and oldest) place, number of places; one '<d' per place, 0 if empty.
local function read_older(key, header)
  local next_place, size = struct.unpack('<dd', header)
  check(next_place, size, size - next_place - 1)
  local raw, times = call('GETRANGE', key, 16, 15 + 8 * size), {}
  for place = next_place, next_place + size - 1 do
    local time = struct.unpack('<d', raw, 8 * (place % size) + 1)
    check(time, 0, 0)
    if time > 0 then
      times[#times + 1] = time
    end
  end
  return ring_of(times, size)
end

-- A ring that is on the server: only its header is read at once.
function sliding_window_log.load(key)
  local header = call('GETRANGE', key, 0, HEADER_SIZE - 1)
  if header == '' then
    return nil
  elseif byte(header) == 0 then
    return read_older(key, header)
  end
  local width, next_place, size, held, newest = struct.unpack(HEADER, header)
  local span = SPAN[width]
  check(newest, size - next_place - 1, size - held)
  if not span or call('STRLEN', key) ~= HEADER_SIZE + width * size then
    error('not a counter')
  end
  return {key = key, width = width, span = span, next = next_place, size = size, held = held, newest = newest}
end

-- An instant of which the lowest bytes are known.
local function in_full(ring, low)
  return ring.newest - (ring.newest - low) % ring.span
end

-- The entry at a place counted from the oldest that is held.
local function rank(ring, place)
  if ring.times then
    return ring.times[place + 1]
  end
  local width = ring.width
  local at = HEADER_SIZE + width * ((ring.next - ring.held + place) % ring.size)
  return in_full(ring, (struct.unpack(PLACE[width], call('GETRANGE', ring.key, at, at + width - 1))))
end

-- All entries in a table, oldest first.
local function in_order(ring)
  if ring.times then
    return ring.times
  end
  local width, times = ring.width, {}
  local raw = call('GETRANGE', ring.key, HEADER_SIZE, HEADER_SIZE + width * ring.size - 1)
  for place = 1, ring.held do
    local index = (ring.next - ring.held + place - 1) % ring.size
    times[place] = in_full(ring, (struct.unpack(PLACE[width], raw, width * index + 1)))
  end
  return times
end

-- How many entries are later than `cutoff`, and the oldest of them: the ring is sorted.
local function in_view(ring, cutoff)
  local low, high, oldest = 0, ring.held, nil
  while low < high do
    local middle = math.floor((low + high) / 2)
    local time = rank(ring, middle)
    if time > cutoff then
      high, oldest = middle, time
    else
      low = middle + 1
    end
  end
  return ring.held - low, oldest
end

-- The ring itself, or, if the clock stepped back, with what was admitted later than now admitted now.
local function ring_present(ring, now)
  if ring.newest <= now then
    return ring
  end
  local times = {}
  for place, time in ipairs(in_order(ring)) do
    times[place] = math.min(time, now)
  end
  return ring_of(times, ring.size)
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
  state = ring_present(state, now)
  local live, oldest = in_view(state, now - period)
  if live + cost <= amount then
    if cost > 0 then
      local after = {admit = cost, now = now, live = live, oldest = oldest, ring = state}
      return after, 1, amount - live - cost, period, 0, 0, now, 0, 0
    end
    return state, 1, amount - live, live > 0 and state.newest + period - now or 0, 0, 0, now, 0, 0
  end
  local reset_after = live > 0 and state.newest + period - now or 0
  local retry_after = NEVER
  if cost <= amount then
    -- So many of the oldest in view must leave it; the last of those says when.
    local leaving = live + cost - amount
    retry_after = rank(state, state.held - live + leaving - 1) + period - now
  end
  return state, 0, math.max(0, amount - live), reset_after, retry_after, 0, now, 0, 0
end

function sliding_window_log.charge(state, hit, now, cost)
  local live, oldest = 0, nil
  if state then
    state = ring_present(state, now)
    live, oldest = in_view(state, now - hit.period)
  end
  -- Past the limit only the newest `amount` matter: the older leave first.
  return {admit = math.min(cost, hit.amount), now = now, live = live, oldest = oldest, ring = state}
end

-- Writes a whole ring, as narrow as its entries allow.
local function write_whole(key, ring, hit)
  local times, spread = ring.times, ring.size > LARGE and hit.period or 0
  spread = math.max(spread, ring.newest - (times[1] or 0))
  local width = 3
  while width < 7 and SPAN[width] <= spread do
    width = width + 1
  end
  local place, span = PLACE[width], SPAN[width]
  local parts = {struct.pack(HEADER, width, ring.held % ring.size, ring.size, ring.held, ring.newest)}
  for index, time in ipairs(times) do
    parts[index + 1] = struct.pack(place, time % span)
  end
  parts[#parts + 1] = string.rep('\0', width * (ring.size - ring.held))
  call('SET', key, table.concat(parts))
end

-- Of the instants in view those that there are places for, and the admission.
local function with_admission(state, size)
  local times, before = {}, state.ring and in_order(state.ring) or {}
  for place = #before - math.min(state.live, size - state.admit) + 1, #before do
    times[#times + 1] = before[place]
  end
  for _ = 1, state.admit do
    times[#times + 1] = state.now
  end
  return ring_of(times, size)
end

-- Writes what decide, charge or give_back returned.
function sliding_window_log.save(key, state, hit)
  local ring, cost = state.ring, state.admit
  if not cost then
    write_whole(key, state, hit)
    return
  end
  local size, needed = ring and ring.size or math.min(MIN_SIZE, hit.amount), state.live + cost
  if size > hit.amount then
    size = hit.amount
  elseif needed > size then
    size = math.min(hit.amount, math.max(2 * size, needed))
  end
  local fits = ring and ring.width and ring.size == size
  if not fits or (state.oldest and state.now - state.oldest >= ring.span) then
    write_whole(key, with_admission(state, size), hit)
    return
  end
  local next_place, width = ring.next, ring.width
  local entry = struct.pack(PLACE[width], state.now % ring.span)
  local until_end = math.min(cost, size - next_place)
  call('SETRANGE', key, HEADER_SIZE + width * next_place, string.rep(entry, until_end))
  if cost > until_end then
    call('SETRANGE', key, HEADER_SIZE, string.rep(entry, cost - until_end))
  end
  next_place = (next_place + cost) % size
  call('SETRANGE', key, 0, struct.pack(HEADER, width, next_place, size, math.min(size, needed), state.now))
end

function sliding_window_log.expires_at(state, hit)
  return (state.admit and state.now or state.newest) + hit.period
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
  return ring_of(kept, state.size)
end

function sliding_window_log.is_unused(state)
  return state.held == 0
end
