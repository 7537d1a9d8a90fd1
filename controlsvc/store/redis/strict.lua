
-- Strict charges, each under one rate of a sliding log that has room for all of it, and each of another key or after those of
-- its key. They are made without the functions and tables that everything else takes, and many in one execution, which would
-- take Redis as long as the charges themselves. What is not as simple is declined, and is made by the other script.
--
-- KEYS  for each charge the two of its window
-- ARGV  for each charge the window's length, the units of its rate, the call and the part that it is for, want and min
--
-- Answers, one after the other, what reserve in operations.lua does; -1 alone for a charge that is declined.
--
-- A whole number that is an argument by itself is given as it is: redis.call prints all its digits.

local answer = {}

-- Makes a charge, or gives false before anything is written. What has leases goes the other way.
local function charge(charges, accountKey, length, limit, call, part, want, min)
  local account, units, leased, size, latest, minted, till = redis.call('GET', accountKey), 0, 0, 0, 0, 0, 0
  if account and #account == ACCOUNT_SIZE then
    units, leased, size, latest, minted, till = struct.unpack(ACCOUNT, account)
  end
  if not (units >= size and size >= 0 and leased == 0) then return false end
  local gone, lastGone = size, -2 -- all but the one that will be new
  if latest <= now - length then -- nothing is inside
    units, latest = 0, 0
  else
    local page = redis.call('ZRANGEBYSCORE', charges, '-inf', now - length, 'LIMIT', '0', PAGE)
    if #page == PAGE then return false end
    gone, lastGone = #page, #page - 1
    for j = 1, gone do units = units - unitsOf(page[j]) end
  end
  units = units + want
  if units > tonumber(limit) or want % min ~= 0 or size >= MAX_CHARGES then return false end
  if now > latest then latest = now end
  local lives = livesTill(till, latest + length)
  -- The members are what counts. That the account is of as many is looked at whenever their lives are prolonged.
  if lives > till and redis.call('ZCARD', charges) ~= size then return false end
  local name = 'c:' .. call .. ':' .. part .. ':' .. nowText .. ':' .. fmt(want)
  if redis.call('ZADD', charges, 'NX', nowText, name) == 0 then return false end -- there is one of this name
  if now > minted then minted = now end
  if gone > 0 then redis.call('ZREMRANGEBYRANK', charges, '0', lastGone) end
  account = struct.pack(ACCOUNT, units, 0, size - gone + 1, latest, minted, lives)
  local life = math.ceil((lives - now) / 1000)
  if lives > till then
    redis.call('SET', accountKey, account, 'PX', life)
  else
    redis.call('SET', accountKey, account, 'KEEPTTL')
  end
  if lives > till or size == 0 then redis.call('PEXPIRE', charges, life) end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4], answer[n + 5] = want, now, 0, 0, 0
  answer[n + 6], answer[n + 7], answer[n + 8], answer[n + 9], answer[n + 10] = 0, 0, 1, units, latest + length - now
  return true
end

for i = 0, #KEYS / 2 - 1 do
  local a = 6 * i
  -- What is wrong with one key is nothing to the others: the other script says what it is.
  local sound, made = pcall(charge, KEYS[2 * i + 1], KEYS[2 * i + 2], tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3], ARGV[a + 4],
    tonumber(ARGV[a + 5]), ARGV[a + 6])
  if not (sound and made) then answer[#answer + 1] = -1 end
end
return answer
