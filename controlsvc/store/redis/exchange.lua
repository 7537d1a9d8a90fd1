-- Keeps what a replica of the service says, and gives what the others say.
--
-- KEYS  a hash: a replica, and the instant at which it is forgotten, in microseconds of Redis' clock, a colon, what it says.
-- ARGV  the replica, in 16 hexadecimal digits; what it says; its time to live in microseconds; how many replicas there are
--       at most.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ttl, most = tonumber(ARGV[3]), tonumber(ARGV[4])

local others, count, known = {}, 0, false
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local colon = string.find(all[i + 1], ':', 1, true)
  local till = tonumber(string.sub(all[i + 1], 1, (colon or 1) - 1))
  if not till or till <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    count = count + 1
    if all[i] == ARGV[1] then
      known = true
    else
      table.insert(others, string.sub(all[i + 1], colon + 1))
    end
  end
end
if not known and count >= most then return redis.error_reply('too many replicas say something') end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ttl) .. ':' .. ARGV[2])
local life = math.ceil(ttl / 1000)
if redis.call('PTTL', KEYS[1]) < life then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life)) end
return others
