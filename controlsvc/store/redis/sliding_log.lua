-- The sliding log of one key: one operation, executed whole, at one reading of Redis' clock.
--
-- KEYS  for each window: its charges, a ZSET of one member for each charge, scored with the latest instant at which the
--       charge may be spent; and its account, a HASH of what the members sum up to.
-- ARGV  the operation, the windows' lengths in the order of KEYS, and what the operation takes: see below.
--
-- Instants are microseconds since 1970 and durations microseconds: whole numbers below 2^53, which a Lua number and a score
-- hold exactly. Lua would print one as 1.7637192001235e+15, so fmt prints every number that goes to Redis.
--
-- A member is kind:call:part:minted:units, and after a settle or in a record kind:call:part:minted:place:units. Of kinds
-- there are l, a lease, which may come back; c, a strict charge; s, what was left of either when it was settled; r, what was
-- recorded. No two charges of a key have the same name, so none ever takes another's place.

local MARGIN = 10000000      -- how long a key outlives its last charge: clocks and replicas need not agree to the microsecond
local PAGE = 100             -- members that are read at once
local MAX_CHARGES = 1048576  -- in one window
local MAX_HELD = 4503599627370496

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function fmt(n) return string.format('%.0f', n) end
local function unitsOf(member) return tonumber(string.match(member, ':(%d+)$')) end
local function isLease(member) return string.byte(member) == 108 end -- l

local count = #KEYS / 2
local windows = {}

-- Tallies a window's members anew.
local function tally(w)
  w.units, w.leased, w.changed = 0, 0, true
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

-- Reads where a window stands. The members are what counts: without them the account is nothing, and an account that is
-- missing, or less than they can be, is made anew.
local function load(i)
  local w = {
    charges = KEYS[2 * i - 1], account = KEYS[2 * i], length = tonumber(ARGV[1 + i]),
    units = 0, leased = 0, size = 0, latest = 0, changed = false,
  }
  local account = redis.call('HMGET', w.account, 'units', 'leased', 'minted')
  w.minted = tonumber(account[3]) or 0
  local newest = redis.call('ZRANGE', w.charges, '-1', '-1', 'WITHSCORES')
  if #newest == 0 or tonumber(newest[2]) <= now - w.length then
    if #newest > 0 then redis.call('DEL', w.charges) end
    w.changed = account[1] and account[1] ~= '0'
    return w
  end
  w.latest = tonumber(newest[2])
  w.size = redis.call('ZCARD', w.charges)
  w.units, w.leased = tonumber(account[1]) or -1, tonumber(account[2]) or -1
  local whole = w.units >= w.size and w.leased >= 0 and w.leased <= w.units
  prune(w)
  if not whole or w.units < w.size then tally(w) end
  return w
end

local function loadAll()
  for i = 1, count do windows[i] = load(i) end
end

-- Lets a key live until its last charge has left the window, and longer; never shorter than it would.
local function keep(key, life)
  if redis.call('PTTL', key) < life then redis.call('PEXPIRE', key, fmt(life)) end
end

-- Writes the accounts back, and lets what has been charged live as long as it counts.
local function store()
  for _, w in ipairs(windows) do
    if w.changed then
      redis.call('HSET', w.account, 'units', fmt(w.units), 'leased', fmt(w.leased), 'minted', fmt(w.minted))
      local life = math.ceil((math.max(w.latest - now, 0) + w.length + MARGIN) / 1000)
      if w.size > 0 then keep(w.charges, life) end
      keep(w.account, life)
    end
  end
end

local function charge(w, member, score, units)
  if redis.call('ZADD', w.charges, 'NX', fmt(score), member) == 0 then return false end
  w.units, w.size, w.changed = w.units + units, w.size + 1, true
  if isLease(member) then w.leased = w.leased + units end
  w.latest = math.max(w.latest, score)
  return true
end

local function discharge(w, member, units)
  redis.call('ZREM', w.charges, member)
  w.units, w.size, w.changed = w.units - units, w.size - 1, true
  if isLease(member) then w.leased = w.leased - units end
end

-- Two grants may fall into one microsecond, and the clock may step back; a name is never given twice all the same.
local function mint()
  local minted = now
  for _, w in ipairs(windows) do minted = math.max(minted, w.minted + 1) end
  for _, w in ipairs(windows) do w.minted, w.changed = minted, true end
  return fmt(minted)
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

-- Gives the first instant from now on at which at most so many units are inside a window, if nothing more is charged; and
-- the first at which that is so without the leases, which may come back.
local function fallsTo(w, room)
  local left, sure = w.units, w.units - w.leased
  local all, certain
  if sure <= room then certain = now end
  if left <= room then return now, now end
  local found = visitOldest(w, function(member, units, score)
    left = left - units
    if not isLease(member) then sure = sure - units end
    if not certain and sure <= room then certain = score + w.length end
    if left <= room then all = score + w.length end
    return all
  end)
  if not found then -- the account said more than there is
    tally(w)
    return fallsTo(w, room)
  end
  return all, math.min(certain or all, all)
end

-- Sums what has left a window at an instant, at least as much as is wanted if there is so much.
local function leftBy(w, at, wanted)
  local sum = 0
  visitOldest(w, function(_, units, score)
    if sum >= wanted or score > at - w.length then return true end
    sum = sum + units
  end)
  return sum
end

local function multiple(n, of)
  if n < of then return 0 end
  return n - n % of
end

-- Appends, for each window, the units inside and how long until it is empty.
local function standing(answer)
  for _, w in ipairs(windows) do
    table.insert(answer, w.units)
    table.insert(answer, w.size > 0 and w.latest + w.length - now or 0)
  end
  return answer
end

local operations = {}

-- limits..., call, part, want, min, ttl, horizon -> {units, name, start, end, denied, retry, certain, window, standing...}
-- denied: 0 no, 1 for so long, 2 for ever; window: the place of the one that denies for the longest.
function operations.reserve(at)
  loadAll()
  local limits = {}
  for i = 1, count do limits[i] = tonumber(ARGV[at + i]) end
  at = at + count
  local want, min = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local ttl, horizon = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])

  local function soonest()
    local all, certain, window = now, now, 1
    for i, w in ipairs(windows) do
      if min > limits[i] then return nil end
      local a, c = fallsTo(w, limits[i] - min)
      if a > all then all, window = a, i end
      certain = math.max(certain, c)
    end
    return all, certain, window
  end

  local free = want
  for i, w in ipairs(windows) do free = math.min(free, limits[i] - w.units) end
  local units, start = multiple(free, min), now
  if units == 0 and ttl > 0 and horizon > 0 then
    local all = soonest()
    if all and all <= now + horizon then
      start, free = all, want
      for i, w in ipairs(windows) do
        local used = w.units - leftBy(w, start, want - limits[i] + w.units)
        free = math.min(free, limits[i] - used)
      end
      units = multiple(free, min)
    end
  end

  local answer = {0, '', 0, 0, 0, 0, 0, 1}
  if units > 0 then
    local kind = ttl > 0 and 'l' or 'c'
    local name = table.concat({kind, ARGV[at + 1], ARGV[at + 2], mint(), fmt(units)}, ':')
    for i, w in ipairs(windows) do
      if w.size >= MAX_CHARGES then return redis.error_reply('FULL a window of the key holds too many charges') end
    end
    for i, w in ipairs(windows) do
      if not charge(w, name, start + ttl, units) then -- it is there already: whose it is, nobody knows
        for j = 1, i - 1 do discharge(windows[j], name, units) end
        return redis.error_reply('TWICE the key holds a charge of this name')
      end
    end
    answer[1], answer[2], answer[3], answer[4] = units, name, start - now, start + ttl - now
  end
  if want - units >= min then
    local all, certain, window = soonest()
    if all then
      answer[5], answer[6], answer[7], answer[8] = 1, all - now, certain - now, window
    else
      answer[5] = 2
    end
  end
  store()
  return standing(answer)
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

-- name of the grant, the same as a settled charge's begins, units, units that keep their score, (age, units)...
-- The first settle takes the grant's member away, so a second finds none. Others are put in before, for a ZSET that is
-- emptied loses its time to live.
function operations.settle(at)
  loadAll()
  local name, settled = ARGV[at + 1], ARGV[at + 2]
  local units, kept = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  for _, w in ipairs(windows) do
    local score = tonumber(redis.call('ZSCORE', w.charges, name))
    if score then
      spent(w, settled, at + 5, score)
      if kept > 0 then charge(w, settled .. ':0:' .. fmt(kept), score, kept) end
      discharge(w, name, units)
    end
  end
  store()
  return 0
end

-- pattern of the grants' names, as ZSCAN matches it
function operations.cancel(at)
  loadAll()
  for _, w in ipairs(windows) do
    local found, cursor = {}, '0'
    repeat
      local page = redis.call('ZSCAN', w.charges, cursor, 'MATCH', ARGV[at + 1], 'COUNT', '1000')
      cursor = page[1]
      for j = 1, #page[2], 2 do found[page[2][j]] = true end
    until cursor == '0'
    for member in pairs(found) do discharge(w, member, unitsOf(member)) end
  end
  store()
  return 0
end

-- call, units, (age, units)...
function operations.record(at)
  loadAll()
  local units = tonumber(ARGV[at + 2])
  for _, w in ipairs(windows) do
    if w.size >= MAX_CHARGES or w.units + units > MAX_HELD then
      return redis.error_reply('FULL a window of the key holds too much')
    end
  end
  local name = table.concat({'r', ARGV[at + 1], '', mint()}, ':')
  for _, w in ipairs(windows) do spent(w, name, at + 3, nil) end
  store()
  return 0
end

-- -> {standing...}
function operations.peek()
  loadAll()
  store()
  return standing({})
end

-- The account stays, empty, until it has expired: it knows the last name.
function operations.reset()
  loadAll()
  for _, w in ipairs(windows) do
    if w.size > 0 then
      redis.call('DEL', w.charges)
      w.units, w.leased, w.size, w.changed = 0, 0, 0, true
    end
  end
  store()
  return 0
end

return operations[ARGV[1]](1 + count)
