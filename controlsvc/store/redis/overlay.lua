-- Changes the overlay of a domain, and gives it: see authority.Edit.
--
-- KEYS  the entries' names, a ZSET scored with the instant at which each expires, in microseconds of Redis' clock; and a HASH
--       from the names to the texts, with the revision under the empty name, which no entry has.
-- ARGV  the revision that the caller knows, how many entries there is room for, the name to remove, and name, text and time to
--       live in microseconds of what to put; no name: nothing.
-- -> {revision, whether the name was there, name, text, time to live...}, the entries only where the revision is not the
-- known one; or an error that begins with NOROOM.

local MARGIN = 10000000
local PAGE = 1000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local most, unwanted, name, text, ttl = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local function fmt(n) return string.format('%.0f', n) end

local revision = tonumber(redis.call('HGET', KEYS[2], '') or '0')

local function touch()
  revision = math.max(now, revision + 1)
  redis.call('HSET', KEYS[2], '', fmt(revision))
end

local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', fmt(now), 'LIMIT', '0', fmt(PAGE))
if #gone > 0 then
  redis.call('ZREM', KEYS[1], unpack(gone))
  redis.call('HDEL', KEYS[2], unpack(gone))
  touch()
end

local removed = unwanted ~= '' and redis.call('ZSCORE', KEYS[1], unwanted) ~= false
if name ~= '' and not removed and not redis.call('ZSCORE', KEYS[1], name) and redis.call('ZCARD', KEYS[1]) >= most then
  return redis.error_reply('NOROOM it holds ' .. redis.call('ZCARD', KEYS[1]) .. ' entries')
end
if removed then
  redis.call('ZREM', KEYS[1], unwanted)
  redis.call('HDEL', KEYS[2], unwanted)
  touch()
end
if name ~= '' then
  redis.call('ZADD', KEYS[1], fmt(now + ttl), name)
  redis.call('HSET', KEYS[2], name, text)
  touch()
end
if revision > 0 then
  local latest = redis.call('ZRANGE', KEYS[1], '-1', '-1', 'WITHSCORES')
  local millis = math.ceil((math.max((tonumber(latest[2]) or now) - now, 0) + MARGIN) / 1000)
  for i = 1, 2 do
    if redis.call('PTTL', KEYS[i]) < millis then redis.call('PEXPIRE', KEYS[i], fmt(millis)) end
  end
end

local answer = {fmt(revision), removed and 1 or 0}
if fmt(revision) ~= ARGV[1] then
  local all = redis.call('ZRANGE', KEYS[1], '0', '-1', 'WITHSCORES')
  for j = 1, #all, 2 do
    table.insert(answer, all[j])
    table.insert(answer, redis.call('HGET', KEYS[2], all[j]) or '')
    table.insert(answer, tonumber(all[j + 1]) - now)
  end
end
return answer
