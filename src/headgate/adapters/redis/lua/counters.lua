-- Loading and saving counters, and the clock.

local function load(key, hit)
  local algorithm = ALGORITHMS[hit.algorithm]
  if algorithm.load then
    return algorithm.load(key)
  end
  local value = redis.call('GET', key)
  if value then
    return algorithm.read(value, hit)
  end
end

local function is_empty(state)
  return not state or next(state) == nil
end

-- Writes a state and gives it a time to live, never shorter than it matters.
local function save(key, hit, state, now, least_ttl)
  local algorithm = ALGORITHMS[hit.algorithm]
  if is_empty(state) then
    redis.call('DEL', key)
    return
  end
  local ttl = math.max(1, math.ceil((algorithm.expires_at(state, hit) - now) / 1000) + 1, least_ttl)
  if algorithm.save then
    algorithm.save(key, state, hit)
    redis.call('PEXPIRE', key, ttl)
  else
    redis.call('SET', key, algorithm.write(state, hit), 'PX', ttl)
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
