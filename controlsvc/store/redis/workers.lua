-- Notes that a worker is there, and gives how many are and which of them it is.
--
-- KEYS  the workers, a ZSET scored with the instant at which each is forgotten, in microseconds of Redis' clock; and the
--       same workers with a score of 0, in the order of their names, so that each keeps its rank while nobody comes or goes.
-- ARGV  the worker, in 16 hexadecimal digits; its time to live in microseconds; how many workers are told apart.

local MARGIN = 10000000
local PAGE = 100

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local ttl, most = tonumber(ARGV[2]), tonumber(ARGV[3])

local function fmt(n) return string.format('%.0f', n) end

repeat
  local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt(now), 'LIMIT', '0', fmt(PAGE))
  if #gone > 0 then
    redis.call('ZREM', KEYS[1], unpack(gone))
    redis.call('ZREM', KEYS[2], unpack(gone))
  end
until #gone < PAGE

local till = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]))
if not till and redis.call('ZCARD', KEYS[1]) >= most then return {most + 1, most} end
redis.call('ZADD', KEYS[1], fmt(math.max(now + ttl, till or 0)), ARGV[1])
redis.call('ZADD', KEYS[2], '0', ARGV[1])
local life = math.ceil((ttl + MARGIN) / 1000)
for i = 1, 2 do
  if redis.call('PTTL', KEYS[i]) < life then redis.call('PEXPIRE', KEYS[i], fmt(life)) end
end
return {redis.call('ZCARD', KEYS[2]), redis.call('ZRANK', KEYS[2], ARGV[1])}
