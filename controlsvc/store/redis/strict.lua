
-- The quick way of a sliding log: a strict charge under one rate that has room for all of it. It is made without the
-- functions and tables of everything else, which would take Redis as long as the charge itself. What is not as simple goes on
-- below, and nothing is written by then. What a window consists of is said there.
--
-- A whole number that is an argument by itself is given as it is: redis.call prints all its digits.

local PAGE = 100 -- members that are read at once
local ACCOUNT = '<dddddd'

if ARGV[1] == 'reserve' and ARGV[2] == '1' and ARGV[10] == '0' then
  local charges, account, length, want = KEYS[1], redis.call('GET', KEYS[2]), tonumber(ARGV[3]), tonumber(ARGV[8])
  local size, units, leased, counted, latest, minted, till = redis.call('ZCARD', charges), 0, 0, 0, 0, 0, 0
  if account and #account == 48 then
    units, leased, counted, latest, minted, till = struct.unpack(ACCOUNT, account)
  end
  local gone, sound = 0, size == 0 or size == counted and units >= size and leased <= units
  if size == 0 or latest <= now - length then -- nothing is inside
    units, leased, latest, gone = 0, 0, 0, size
  elseif sound then
    local page = redis.call('ZRANGEBYSCORE', charges, '-inf', now - length, 'LIMIT', '0', PAGE)
    gone = #page
    for j = 1, gone do
      local n = unitsOf(page[j])
      units = units - n
      if isLease(page[j]) then leased = leased - n end
    end
    sound = gone < PAGE
  end
  units = units + want
  if sound and units <= tonumber(ARGV[4]) and want % ARGV[9] == 0 and size < MAX_CHARGES then
    if gone > 0 then redis.call('ZREMRANGEBYRANK', charges, '0', gone - 1) end
    if now > minted then minted = now else minted = minted + 1 end
    if now > latest then latest = now end
    local name = 'c:' .. ARGV[6] .. ':' .. ARGV[7] .. ':' .. fmt(minted) .. ':' .. ARGV[8]
    if redis.call('ZADD', charges, 'NX', now, name) == 0 then return redis.error_reply('TWICE the key holds a charge of this name') end
    till = math.max(till, latest + length + MARGIN)
    local life = math.ceil((till - now) / 1000)
    redis.call('SET', KEYS[2], struct.pack(ACCOUNT, units, leased, size - gone + 1, latest, minted, till), 'PX', life)
    redis.call('PEXPIRE', charges, life)
    return {want, minted, 0, 0, 0, 0, 0, 1, units, latest + length - now}
  end
end

