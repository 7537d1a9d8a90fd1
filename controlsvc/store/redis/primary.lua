-- Notes which server is the primary, and gives for how long nothing is to be granted since it has changed.
--
-- KEYS  the note, a HASH, which is replicated like all else: a server that becomes the primary finds its predecessor's.
-- ARGV  the server's run id; the seconds for which it has run; the period, in microseconds.
--
-- A server without a note has lost it with everything else, or has never had one: it may have begun to forget when it started.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local known = redis.call('HMGET', KEYS[1], 'run', 'since')
local since = tonumber(known[2] or '') or now
if known[1] ~= ARGV[1] then
  since = now
  if not known[1] then since = now - tonumber(ARGV[2]) * 1000000 end
  redis.call('HSET', KEYS[1], 'run', ARGV[1], 'since', string.format('%.0f', since))
end
return math.max(0, since + tonumber(ARGV[3]) - now)
