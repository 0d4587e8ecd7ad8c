// The six algorithms, for the comparison in algorithms/compare.md: cost 1, a clock that never steps back.
// tests/docs/test_compare.py holds every answer to that of src/headgate/core/algorithms.
// Each is made from { amount, period, burst, maxDelay, hold } (times in whole microseconds) and answers
// take(now) with { allowed, delay, retryAfter }.
"use strict";

function fixedWindow({ amount, period }) {
  let start = -1, count = 0;
  return (now) => {
    const begun = now - (now % period);
    if (begun !== start) [start, count] = [begun, 0];
    if (count + 1 <= amount) { count += 1; return { allowed: true, delay: 0, retryAfter: 0 }; }
    return { allowed: false, delay: 0, retryAfter: start + period - now };
  };
}

function slidingWindowCounter({ amount, period }) {
  let start = 0, current = 0, previous = 0;
  const faded = (count, most) => (count <= most ? 0 : period + 1 - Math.ceil(((most + 1) * period) / count));
  return (now) => {
    const elapsed = now % period, begun = now - elapsed;
    if (begun !== start) [start, current, previous] = [begun, 0, begun - start === period ? current : 0];
    const used = Math.floor((previous * (period - elapsed)) / period) + current;
    if (used + 1 <= amount) { current += 1; return { allowed: true, delay: 0, retryAfter: 0 }; }
    const most = amount - 1;
    const retryAfter = current <= most
      ? Math.max(0, faded(previous, most - current) - elapsed)
      : period - elapsed + faded(current, most);
    return { allowed: false, delay: 0, retryAfter };
  };
}

function slidingWindowLog({ amount, period }) {
  let times = [];
  return (now) => {
    times = times.filter((time) => time > now - period);
    if (times.length + 1 <= amount) { times.push(now); return { allowed: true, delay: 0, retryAfter: 0 }; }
    return { allowed: false, delay: 0, retryAfter: times[times.length - amount] + period - now };
  };
}

// A level in shares: one unit is `period` shares, and `amount` shares drain in each microsecond.
function drained(level, since, now, amount) { return Math.max(0, level - (now - since) * amount); }

function tokenBucket({ amount, period, burst }) {
  let since = 0, missing = 0;
  return (now) => {
    const after = drained(missing, since, now, amount) + period;
    if (after <= burst * period) { [since, missing] = [now, after]; return { allowed: true, delay: 0, retryAfter: 0 }; }
    return { allowed: false, delay: 0, retryAfter: Math.ceil((after - burst * period) / amount) };
  };
}

function leakyBucket({ amount, period, burst, maxDelay }) {
  let since = 0, queued = 0;
  return (now) => {
    const ahead = drained(queued, since, now, amount), after = ahead + period;
    const delay = Math.ceil(ahead / amount);
    if (after <= burst * period && delay <= maxDelay) {
      [since, queued] = [now, after];
      return { allowed: true, delay, retryAfter: 0 };
    }
    const room = Math.max(0, Math.ceil((after - burst * period) / amount));
    return { allowed: false, delay: 0, retryAfter: Math.max(room, delay - maxDelay) };
  };
}

function concurrency({ amount, hold }) {
  let ends = [];
  return (now) => {
    ends = ends.filter((end) => end > now);
    if (ends.length + 1 <= amount) { ends.push(now + hold); return { allowed: true, delay: 0, retryAfter: 0 }; }
    return { allowed: false, delay: 0, retryAfter: Math.min(...ends) - now };
  };
}

const ALGORITHMS = {
  fixed_window: fixedWindow,
  sliding_window_counter: slidingWindowCounter,
  sliding_window_log: slidingWindowLog,
  token_bucket: tokenBucket,
  leaky_bucket: leakyBucket,
  concurrency,
};

if (typeof module !== "undefined") module.exports = { ALGORITHMS };
