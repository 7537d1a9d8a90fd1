
-- Strict charges, each under one rate of a sliding log that has room for all of it, and each of another key or after those of
-- its key. They are made without the functions and tables that everything else takes, and many in one execution, which would
-- take Redis as long as the charges themselves. What is not as simple is declined, and is made by the other script.
--
-- KEYS  for each charge the two of its window
-- ARGV  for each charge the window's length, the units of its rate, its name but for minted and units, and its units
--
-- Answers the instant, and for each charge, one after the other, the units inside and how long until the window is empty; -1
-- alone for one that is declined.
--
-- A whole number that is an argument by itself is given as it is: redis.call prints all its digits.

local answer = {now}

-- Makes a charge, or gives false before anything is written. What has leases goes the other way.
local function charge(charges, accountKey, length, limit, name, want)
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
  if units > tonumber(limit) or size >= MAX_CHARGES then return false end
  if now > latest then latest = now end
  local lives = livesTill(till, latest + length)
  -- The members are what counts. That the account is of as many is looked at whenever their lives are prolonged.
  if lives > till and redis.call('ZCARD', charges) ~= size then return false end
  name = name .. nowText .. ':' .. want
  if redis.call('ZADD', charges, 'NX', nowText, name) == 0 then return false end -- there is one of this name
  if now > minted then minted = now end
  if gone > 0 then redis.call('ZREMRANGEBYRANK', charges, '0', lastGone) end
  account = struct.pack(ACCOUNT, units, 0, size - gone + 1, latest, minted, lives)
  local life = string.format('%d', math.ceil((lives - now) / 1000))
  if lives > till then
    redis.call('SET', accountKey, account, 'PX', life)
  else
    redis.call('SET', accountKey, account, 'KEEPTTL')
  end
  if lives > till or size == 0 then redis.call('PEXPIRE', charges, life) end
  answer[#answer + 1], answer[#answer + 2] = units, latest + length - now
  return true
end

for i = 0, #KEYS / 2 - 1 do
  local k, a = 2 * i, 4 * i
  -- What is wrong with one key is nothing to the others: the other script says what it is.
  local sound, made = pcall(charge, KEYS[k + 1], KEYS[k + 2], tonumber(ARGV[a + 1]), ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
  if not (sound and made) then answer[#answer + 1] = -1 end
end
return answer
