-- Loading and saving counters, and the clock.

local function load(key, hit)
  local algorithm = hit.algorithm
  if algorithm.load then
    return algorithm.load(key)
  end
  local value = call('GET', key)
  if value then
    return algorithm.read(value, hit)
  end
end

-- Longer than anything matters, and within what the server takes.
local MAX_TTL = 4 * MAX_WAIT / 1000

-- In milliseconds, never shorter than it matters.
local function time_to_live(span, min_ttl)
  local ttl = (span + -span % 1000) / 1000 + 1
  if ttl > min_ttl and ttl >= 1 then
    return ttl < MAX_TTL and ttl or MAX_TTL
  end
  return math.max(1, min_ttl)
end

-- Writes a state, or nothing, and gives it a time to live.
local function save(key, hit, state, now, min_ttl)
  if not state then
    call('DEL', key)
    return
  end
  if state.added then -- to digits of the same window, so its time to live is right as it is
    call('INCRBY', key, state.added)
    return
  end
  local algorithm = hit.algorithm
  local ttl = time_to_live(algorithm.expires_at(state, hit) - now, min_ttl)
  if algorithm.save then
    algorithm.save(key, state, hit)
    call('PEXPIRE', key, ttl)
  else
    call('SET', key, algorithm.write(state, hit), 'PX', ttl)
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
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
