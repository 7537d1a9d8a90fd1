-- The sliding log: see account.lua.

local function newest(w)
  return tonumber(redis.call('ZRANGE', w.charges, '-1', '-1', 'WITHSCORES')[2]) or 0
end

-- Tallies a window's members anew.
local function tally(w)
  w.units, w.leased, w.latest, w.changed = 0, 0, newest(w), true
  local from = 0
  repeat
    local page = redis.call('ZRANGE', w.charges, fmt(from), fmt(from + PAGE - 1))
    for _, member in ipairs(page) do
      local units = unitsOf(member)
      w.units = w.units + units
      if isLease(member) then w.leased = w.leased + units end
    end
    from = from + #page
  until #page < PAGE
end

-- Takes out what has left the window: members with a score of at most now - window. Each is taken out once.
local function prune(w)
  repeat
    local page = redis.call('ZRANGEBYSCORE', w.charges, '-inf', fmt(now - w.length), 'LIMIT', '0', fmt(PAGE))
    if #page > 0 then
      for _, member in ipairs(page) do
        local units = unitsOf(member)
        w.units = w.units - units
        if isLease(member) then w.leased = w.leased - units end
      end
      redis.call('ZREMRANGEBYRANK', w.charges, '0', fmt(#page - 1))
      w.size, w.changed = w.size - #page, true
    end
  until #page < PAGE
end

-- The members are what counts: without them the account is nothing, and an account that is missing, of another number of
-- members, or less than they can be, is made anew.
function load(w)
  w.charges, w.account = w.keys[1], w.keys[2]
  w.size = redis.call('ZCARD', w.charges)
  local account, size = redis.call('GET', w.account)
  w.units, w.leased, w.latest, w.minted, w.till = 0, 0, 0, 0, 0
  if account and #account == ACCOUNT_SIZE then
    w.units, w.leased, size, w.latest, w.minted, w.till = struct.unpack(ACCOUNT, account)
  end
  if w.size > 0 and not (w.size == size and w.units >= size and w.leased <= w.units) then tally(w) end
  if w.size > 0 and w.latest > now - w.length then
    prune(w)
    return
  end
  if w.size > 0 then redis.call('DEL', w.charges) end
  w.units, w.leased, w.size, w.latest = 0, 0, 0, 0
end

-- Both keys live until the last charge has left, and longer; never shorter than they would.
function save(w)
  if w.less then w.latest = newest(w) end
  local till = livesTill(w.till, math.max(w.latest, now) + w.length)
  local life = fmt(math.ceil((till - now) / 1000))
  redis.call('SET', w.account, struct.pack(ACCOUNT, w.units, w.leased, w.size, w.latest, w.minted, till), 'PX', life)
  if w.size > 0 and (w.fresh or till > w.till) then redis.call('PEXPIRE', w.charges, life) end
end

function used(w) return w.units end

function emptyIn(w) return w.size > 0 and w.latest + w.length - now or 0 end

function full(w, units) return w.size >= MAX_CHARGES or w.units + units > MAX_HELD end

function charge(w, member, score, units)
  if w.size == 0 then w.fresh = true end
  if redis.call('ZADD', w.charges, 'NX', fmt(score), member) == 0 then return false end
  w.units, w.size, w.changed = w.units + units, w.size + 1, true
  if isLease(member) then w.leased = w.leased + units end
  w.latest = math.max(w.latest, score)
  return true
end

function uncharge(w, member, _, units)
  redis.call('ZREM', w.charges, member)
  w.units, w.size, w.less, w.changed = w.units - units, w.size - 1, true, true
  if isLease(member) then w.leased = w.leased - units end
end

-- Visits a window's members from the one that leaves first, until visit says that it has seen enough, which it mostly has
-- at the first. Gives whether it said so.
local function visitOldest(w, visit)
  local from, size = 0, 4
  while true do
    local page = redis.call('ZRANGE', w.charges, fmt(from), fmt(from + size - 1), 'WITHSCORES')
    for j = 1, #page, 2 do
      if visit(page[j], unitsOf(page[j]), tonumber(page[j + 1])) then return true end
    end
    if #page < 2 * size then return false end
    from, size = from + size, PAGE
  end
end

function soonest(w, units)
  local room, left, sure = w.limit - units, w.units, w.units - w.leased
  local all, certain
  if sure <= room then certain = now end
  if left <= room then return now, now end
  local found = visitOldest(w, function(member, gone, score)
    left = left - gone
    if not isLease(member) then sure = sure - gone end
    if not certain and sure <= room then certain = score + w.length end
    if left <= room then all = score + w.length end
    return all
  end)
  if not found then -- the account said more than there is
    tally(w)
    return soonest(w, units)
  end
  return all, math.min(certain or all, all)
end

function free(w, start, _, wanted)
  local left, enough = w.limit - w.units, wanted
  if start == now then return left end
  visitOldest(w, function(_, units, score)
    if left >= enough or score > start - w.length then return true end
    left = left + units
  end)
  return left
end

-- Charges groups of units at the instants at which they were spent, or at most where there is one. Those that have left the
-- window cost nothing.
local function spent(w, name, at, most)
  local place = 0
  for j = at, #ARGV, 2 do
    local score, units = now - tonumber(ARGV[j]), tonumber(ARGV[j + 1])
    if most then score = math.min(score, most) end
    place = place + 1
    if score > now - w.length then
      charge(w, name .. ':' .. fmt(place) .. ':' .. fmt(units), score, units)
    end
  end
end

-- The first settle of a grant takes its member away, so a second finds none. Others are put in before, for a ZSET that is
-- emptied loses its time to live.
function settle(w, name, settled, units, kept, at)
  local score = tonumber(redis.call('ZSCORE', w.charges, name))
  if not score then return end
  spent(w, settled, at, score)
  if kept > 0 then charge(w, settled .. ':0:' .. fmt(kept), score, kept) end
  uncharge(w, name, score, units)
end

-- None of the characters of a call or a part means anything in a pattern. A scan may give a member twice.
function cancel(w, call)
  local found, cursor = {}, '0'
  repeat
    local page = redis.call('ZSCAN', w.charges, cursor, 'MATCH', '[lc]:' .. call .. '*', 'COUNT', '1000')
    cursor = page[1]
    for j = 1, #page[2], 2 do found[page[2][j]] = true end
  until cursor == '0'
  for member in pairs(found) do uncharge(w, member, 0, unitsOf(member)) end
end

function record(w, name, at) spent(w, name, at, nil) end

-- Of charges that may be spent later than now there is little else but leases; of too many the first to end are seen.
function leases(w)
  local live = {}
  local page = redis.call('ZRANGEBYSCORE', w.charges, '(' .. fmt(now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1000')
  for j = 1, #page, 2 do
    if isLease(page[j]) then live[page[j]] = tonumber(page[j + 1]) end
  end
  return live
end

-- The account stays, empty, until it has expired: it knows the last name.
function reset(w)
  if w.size == 0 then return end
  redis.call('DEL', w.charges)
  w.units, w.leased, w.size, w.latest, w.changed = 0, 0, 0, 0, true
end
