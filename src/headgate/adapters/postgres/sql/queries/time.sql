-- time.now(): the time by the one clock that all processes share
SELECT clock_timestamp() AS now;
