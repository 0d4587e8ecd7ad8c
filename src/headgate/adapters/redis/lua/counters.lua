-- Loading and saving a counter, together with the reservations that are open on it.
--
-- A counter is one key. Behind its state there may stand a MessagePack list of
-- reservations, each {id, expires at, amount, stamp 1, stamp 2, stamp 3, closed}. One that
-- expired or was settled stays in the list, closed, until giving it back would be in vain
-- anyway, so that it can never count twice.

local ALGORITHMS = {
  [0] = fixed_window,
  [1] = sliding_window_counter,
  [2] = sliding_window_log,
  [3] = token_bucket,
  [4] = leaky_bucket,
  [5] = concurrency,
}
local SIZES = {[0] = 16, [1] = 24, [3] = 40, [4] = 40}

local ID, EXPIRES, AMOUNT, CLOSED = 1, 2, 3, 7

local function stamp_of(reservation)
  return {reservation[4], reservation[5], reservation[6]}
end

local function load_state(key, hit)
  local algorithm = ALGORITHMS[hit.algorithm]
  if algorithm.load then
    return algorithm.load(key)
  end
  local value = redis.call('GET', key)
  if not value then
    return nil
  end
  local size = SIZES[hit.algorithm]
  if size and #value > size then
    return algorithm.read(value), cmsgpack.unpack(string.sub(value, size + 1))
  end
  return algorithm.read(value)
end

-- The state as of now: reservations that nobody settled in time are given back, each at the
-- instant it expired, so that it does not matter who looks and when.
local function load(key, hit, now)
  local algorithm = ALGORITHMS[hit.algorithm]
  local state, reservations = load_state(key, hit)
  if not reservations then
    return state
  end
  local open, changed = {}, false
  table.sort(reservations, function(one, other)
    if one[EXPIRES] == other[EXPIRES] then
      return one[ID] < other[ID]
    end
    return one[EXPIRES] < other[EXPIRES]
  end)
  for _, each in ipairs(reservations) do
    if each[CLOSED] == 0 and each[EXPIRES] <= now then
      state = algorithm.give_back(state, hit, each[EXPIRES], stamp_of(each), each[AMOUNT])
      each[CLOSED] = 1
      changed = true
    end
    if algorithm.creditable_until(stamp_of(each), hit) > now then
      open[#open + 1] = each
    else
      changed = true
    end
  end
  return state, open, changed
end

local function is_empty(state)
  return not state or (not state.admit and not state.places and next(state) == nil)
end

-- Writes a state and gives it a time to live, never shorter than it matters.
local function save(key, hit, state, reservations, now, least_ttl)
  local algorithm = ALGORITHMS[hit.algorithm]
  if is_empty(state) then
    redis.call('DEL', key)
    return
  end
  local ttl = math.max(1, math.ceil((algorithm.expires_at(state, hit) - now) / 1000) + 1, least_ttl)
  local tail = reservations and (#reservations > 0 and cmsgpack.pack(reservations) or '')
  if algorithm.save then
    algorithm.save(key, state, hit, tail)
    redis.call('PEXPIRE', key, string.format('%.0f', ttl))
  else
    redis.call('SET', key, algorithm.write(state) .. (tail or ''), 'PX', string.format('%.0f', ttl))
  end
end

-- The clock: the server's, or, in tests, the one that is given.
local function read_clock(given)
  if given > 0 then
    return given
  end
  if redis.replicate_commands then
    redis.replicate_commands() -- Redis 6.2 lets a script write after TIME only so
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
