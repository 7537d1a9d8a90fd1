-- The sliding window in buckets. A bucket is a part of the window's length, and a charge whose score lies in it counts as if
-- it could be spent until the bucket's end: never too short, and too long by at most one bucket. What a window takes up does
-- not depend on how many units it holds.
--
-- Of a window there are its buckets, a HASH from a bucket's index since 1970 to its units, or to units:leased where leases
-- have some of them, with the sums beside them; and its grants, a HASH from the name of each grant that may still be settled
-- or cancelled to its bucket's index.
--
-- All that was in buckets up to pruned has left, and nothing ever gets into one of them again: a grant of which the window
-- knows no more than the name cannot take away what others were charged, whatever the clock does.

local BUCKETS = 128 -- in a window

local SUMS = {'units', 'leased', 'strict', 'minted', 'pruned', 'latest'}

local function bucketOf(w, instant) return math.ceil(instant / w.width) end

-- Gives the bucket of an index, as far as it has been read.
local function bucket(w, index)
  if not w.read[index] then
    local units, leased = string.match(redis.call('HGET', w.state, fmt(index)) or '0', '^(%d+):?(%d*)$')
    w.read[index] = {units = tonumber(units) or 0, leased = tonumber(leased) or 0}
  end
  return w.read[index]
end

-- Reads all buckets and gives their indices, the first to leave first.
local function indices(w)
  if not w.whole then
    local all = redis.call('HGETALL', w.state)
    for j = 1, #all, 2 do
      local index = tonumber(all[j])
      if index and not w.read[index] then
        local units, leased = string.match(all[j + 1], '^(%d+):?(%d*)$')
        w.read[index] = {units = tonumber(units) or 0, leased = tonumber(leased) or 0}
      end
    end
    w.whole = true
  end
  local list = {}
  for index, b in pairs(w.read) do
    if b.units > 0 then list[#list + 1] = index end
  end
  table.sort(list)
  return list
end

local function tally(w)
  w.units, w.leased, w.latest, w.changed = 0, 0, w.pruned, true
  for _, index in ipairs(indices(w)) do
    w.units, w.leased, w.latest = w.units + w.read[index].units, w.leased + w.read[index].leased, index
  end
end

local function add(w, index, units, leased)
  local b = bucket(w, index)
  b.units, b.leased, b.dirty = b.units + units, b.leased + leased, true
  w.units, w.leased, w.changed = w.units + units, w.leased + leased, true
  if b.units > 0 then
    w.latest = math.max(w.latest, index)
  elseif index == w.latest then
    local list = indices(w)
    w.latest = list[#list] or w.pruned
  end
end

-- Forgets the grants in buckets that have left, and the older strict charges of too many.
local function sweep(w)
  w.strict = forget(w.grants, function(index) return index <= w.pruned end)
end

-- Takes out the buckets that have left, one after the other where they are few.
local function prune(w, edge)
  if edge <= w.pruned then return end
  local few, list = 16, {}
  if edge - w.pruned > few then
    list = indices(w)
    w.changed = true
  else
    for index = w.pruned + 1, edge do list[#list + 1] = index end
  end
  w.pruned = edge
  local leases = false
  for _, index in ipairs(list) do
    local b = bucket(w, index)
    if index <= edge and b.units > 0 then
      leases = leases or b.leased > 0
      add(w, index, -b.units, -b.leased)
    end
  end
  if leases then sweep(w) end
end

function load(w)
  w.state, w.grants = w.keys[1], w.keys[2]
  w.width = math.floor(w.length / BUCKETS)
  w.read, w.whole = {}, false
  local edge = math.floor((now - w.length) / w.width)
  local sums = redis.call('HMGET', w.state, unpack(SUMS))
  for j, name in ipairs(SUMS) do w[name] = tonumber(sums[j]) or -1 end
  w.minted, w.strict = math.max(w.minted, 0), math.max(w.strict, 0)
  if w.pruned >= 0 and (w.units < 0 or w.leased < 0 or w.leased > w.units or w.latest < 0) then tally(w) end
  if w.units > 0 and w.latest <= edge or w.pruned < 0 then
    redis.call('DEL', w.state, w.grants)
    w.changed = w.units > 0
    w.units, w.leased, w.strict, w.read, w.whole, w.pruned = 0, 0, 0, {}, true, math.max(w.pruned, edge)
    w.latest = w.pruned
    return
  end
  prune(w, edge)
end

function save(w)
  local set, empty = {}, {}
  for _, name in ipairs(SUMS) do
    set[#set + 1] = name
    set[#set + 1] = fmt(w[name])
  end
  for index, b in pairs(w.read) do
    if b.dirty and b.units > 0 then
      set[#set + 1] = fmt(index)
      set[#set + 1] = b.leased > 0 and fmt(b.units) .. ':' .. fmt(b.leased) or fmt(b.units)
    elseif b.dirty then
      empty[#empty + 1] = fmt(index)
    end
  end
  redis.call('HSET', w.state, unpack(set))
  for j = 1, #empty, 1000 do redis.call('HDEL', w.state, unpack(empty, j, math.min(j + 999, #empty))) end
  local life = math.max(w.latest * w.width - now, 0) + w.length
  keep(w.state, life)
  keep(w.grants, life)
end

function used(w) return w.units end

function emptyIn(w) return w.units > 0 and w.latest * w.width + w.length - now or 0 end

function full(w, units) return w.units + units > MAX_HELD or redis.call('HLEN', w.grants) >= MAX_CHARGES end

-- Gives the bucket of what is charged with a score; nil where it has left already.
local function place(w, score)
  local index = bucketOf(w, score)
  if index <= math.floor((now - w.length) / w.width) then return nil end
  return math.max(index, w.pruned + 1)
end

function charge(w, name, score, units)
  local index = place(w, score)
  if redis.call('HSETNX', w.grants, name, fmt(index)) == 0 then return false end
  add(w, index, units, isLease(name) and units or 0)
  if not isLease(name) then
    w.strict = w.strict + 1
    if w.strict >= MOST_STRICT then sweep(w) end
  end
  return true
end

-- Takes a grant out of the grants and of its bucket, and gives the bucket's index; nil where it is not there.
local function take(w, name, units)
  local index = tonumber(redis.call('HGET', w.grants, name))
  if not index then return nil end
  redis.call('HDEL', w.grants, name)
  if not isLease(name) then w.strict, w.changed = math.max(w.strict - 1, 0), true end
  if index <= w.pruned then return nil end
  add(w, index, -units, isLease(name) and -units or 0)
  return index
end

function uncharge(w, name, _, units) take(w, name, units) end

function soonest(w, units)
  local room, left, sure = w.limit - units, w.units, w.units - w.leased
  local certain
  if sure <= room then certain = now end
  if left <= room then return now, now end
  for _, index in ipairs(indices(w)) do
    local b, leaves = w.read[index], index * w.width + w.length
    left, sure = left - b.units, sure - b.units + b.leased
    if not certain and sure <= room then certain = leaves end
    if left <= room then return leaves, math.min(certain or leaves, leaves) end
  end
  tally(w) -- the sums said more than there is
  return soonest(w, units)
end

function free(w, start)
  local left = w.limit - w.units
  if start == now then return left end
  for _, index in ipairs(indices(w)) do
    if index * w.width > start - w.length then break end
    left = left + w.read[index].units
  end
  return left
end

local function spent(w, at, most)
  for j = at, #ARGV, 2 do
    local index = place(w, now - tonumber(ARGV[j]))
    if index then add(w, math.min(index, most or index), tonumber(ARGV[j + 1]), 0) end
  end
end

function settle(w, name, _, units, kept, at)
  local index = take(w, name, units)
  if not index then return end
  spent(w, at, index)
  if kept > 0 then add(w, index, kept, 0) end
end

function cancel(w, pattern)
  for name in pairs(matching('HSCAN', w.grants, pattern)) do take(w, name, unitsOf(name)) end
end

function record(w, _, at) spent(w, at, nil) end

function leases(w)
  local all, live = redis.call('HGETALL', w.grants), {}
  for j = 1, #all, 2 do
    local stop = tonumber(all[j + 1]) * w.width
    if isLease(all[j]) and stop > now then live[all[j]] = stop end
  end
  return live
end

-- The sums stay, empty, until they have expired: they know the last name.
function reset(w)
  redis.call('DEL', w.state, w.grants)
  if w.units == 0 then return end
  w.units, w.leased, w.strict, w.latest, w.read, w.whole, w.changed = 0, 0, 0, 0, {}, true, true
end
