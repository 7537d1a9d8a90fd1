-- The sliding window in buckets. A bucket is a part of the window's length, and a charge whose score lies in it counts as if
-- it could be spent until the bucket's end: never too short, and too long by at most one bucket. What a window takes up does
-- not depend on how many units it holds.
--
-- Of a window there are its state, a STRING, and its grants, of which each is at its bucket's end. The state is packed: sums,
-- how its buckets are packed, and the buckets that hold something, the last to leave first: index, units, and what of the
-- units leases have. The index counts buckets since 1970 and is packed less base. Each number has as many bytes as the
-- largest of its kind needs; more make all of them wider. Most charges read and write the beginning only: all that a script
-- reads it has to collect again, and all that it writes goes to replicas.
--
-- All that was in buckets up to pruned has left, and nothing ever gets into one of them again: a grant of which the window
-- knows no more than the name cannot take away what others were charged, whatever the clock does.

local BUCKETS = 128 -- in a window

-- units, leased, strict, minted, pruned, base, the index of the oldest bucket, until when both keys live, and the buckets'
-- format, which has three digits.
local HEAD, HEAD_SIZE = '<ddddddddc7', 71
local BEGINNING = 128 -- bytes of the state

local function bytesFor(n)
  local bytes = 0
  while n >= 256 ^ bytes do bytes = bytes + 1 end
  return bytes
end

local function formatOf(index, units, leased)
  return '<I' .. math.max(2, bytesFor(index)) .. 'I' .. bytesFor(units) .. 'I' .. bytesFor(leased)
end

-- Reads what of the buckets has not been read.
local function readAll(w)
  if w.all then return end
  w.buckets, w.all = w.buckets .. redis.call('GETRANGE', w.state, HEAD_SIZE + #w.buckets, -1), true
end

local function count(w) return math.floor(#w.buckets / w.size) end

-- Gives the index, the units and the leased ones of the bucket in a place; the last to leave is in place 0.
local function bucket(w, place)
  local index, units, leased = struct.unpack(w.format, w.buckets, place * w.size + 1)
  return index + w.base, units, leased
end

-- Gives the place that a bucket has or would have, and whether it is there.
local function find(w, index)
  local low, high, middle = 0, count(w), 0 -- what is before low leaves later, and what is from high on does not
  while low < high do
    local there = bucket(w, middle)
    if there == index then return middle, true end
    if there > index then low = middle + 1 else high = middle end
    middle = math.floor((low + high) / 2)
  end
  if not w.all and low == count(w) then
    readAll(w)
    return find(w, index)
  end
  return low, false
end

local function fits(w, index, units, leased)
  local i, _, u, _, l = string.byte(w.format, 3, 7) -- its digits
  return index - w.base < 256 ^ (i - 48) and units < 256 ^ (u - 48) and leased < 256 ^ (l - 48)
end

-- Packs the buckets anew, so that one of these numbers fits in.
local function widen(w, index, units, leased)
  readAll(w)
  local all, base = {}, w.pruned
  for place = 0, count(w) - 1 do
    local i, u, l = bucket(w, place)
    all[place + 1] = {i, u, l}
    index, units, leased = math.max(index, i), math.max(units, u), math.max(leased, l)
  end
  if leased > 0 then leased = units end -- they are often all
  w.base, w.format = base, formatOf(index - base, math.max(units, w.limit), leased)
  w.size = struct.size(w.format)
  for place, b in ipairs(all) do all[place] = struct.pack(w.format, b[1] - base, b[2], b[3]) end
  w.buckets, w.whole = table.concat(all), true
end

local function add(w, index, units, leased)
  local more = w.more[index] or {0, 0}
  w.more[index] = more
  more[1], more[2] = more[1] + units, more[2] + leased
  w.units, w.leased, w.changed = w.units + units, w.leased + leased, true
end

-- Puts what was added into the buckets.
local function fold(w)
  if not next(w.more) then return end
  local list = {}
  for index, more in pairs(w.more) do
    local b = {index = index, units = more[1], leased = more[2]}
    b.place, b.there = find(w, index)
    if b.there then
      local _, units, leased = bucket(w, b.place)
      b.units, b.leased = b.units + units, b.leased + leased
    end
    if b.there ~= (b.units > 0) then w.whole = true end
    if not fits(w, index, b.units, b.leased) then widen(w, index, b.units, b.leased) end
    list[#list + 1] = b
  end
  if w.whole then readAll(w) end
  if #list > 1 then table.sort(list, function(a, b) return a.index > b.index end) end
  local pieces, from = {}, 0
  for _, b in ipairs(list) do
    pieces[#pieces + 1] = string.sub(w.buckets, from + 1, b.place * w.size)
    if b.units > 0 then pieces[#pieces + 1] = struct.pack(w.format, b.index - w.base, b.units, b.leased) end
    from = (b.there and b.place + 1 or b.place) * w.size
  end
  w.till = math.max(w.till, from)
  pieces[#pieces + 1] = string.sub(w.buckets, from + 1)
  w.buckets, w.more = table.concat(pieces), {}
end

-- Gives the index of the bucket that is the last to leave.
local function latest(w)
  fold(w)
  return count(w) > 0 and (bucket(w, 0)) or w.pruned
end

-- Takes out the buckets that have left, and forgets the leases in them.
local function prune(w, edge)
  if edge <= w.pruned then return end
  w.pruned = edge
  if w.units == 0 or edge < w.oldest then return end
  readAll(w)
  local left, leases = count(w), false
  while left > 0 do
    local index, units, leased = bucket(w, left - 1)
    if index > edge then break end
    w.units, w.leased, leases, left = w.units - units, w.leased - leased, leases or leased > 0, left - 1
  end
  w.buckets, w.whole, w.changed = string.sub(w.buckets, 1, left * w.size), true, true
  if leases then forget(w, edge * w.width) end
end

-- Leaves nothing in a window, but for minted, pruned and its keys' lives.
local function clear(w)
  redis.call('DEL', w.grants)
  w.units, w.leased, w.strict, w.base, w.oldest, w.buckets, w.format = 0, 0, 0, w.pruned, w.pruned, '', formatOf(0, w.limit, 0)
  w.size, w.more, w.pages, w.written, w.all, w.whole = struct.size(w.format), {}, {}, {}, true, true
end

function load(w)
  w.state, w.grants, w.pages, w.written, w.more, w.till = w.keys[1], w.keys[2], {}, {}, {}, 0
  w.width = math.floor(w.length / BUCKETS)
  local edge = math.floor((now - w.length) / w.width)
  local state = redis.call('GETRANGE', w.state, '0', BEGINNING - 1)
  if #state < HEAD_SIZE then
    w.minted, w.pruned, w.lives = 0, edge, 0
    clear(w)
    return
  end
  w.units, w.leased, w.strict, w.minted, w.pruned, w.base, w.oldest, w.lives, w.format = struct.unpack(HEAD, state)
  w.size, w.buckets, w.all = struct.size(w.format), string.sub(state, HEAD_SIZE + 1), #state < BEGINNING
  if w.units > 0 and latest(w) <= edge then
    w.pruned, w.changed = math.max(w.pruned, edge), true
    clear(w)
    return
  end
  prune(w, edge)
end

-- Both keys live until the last charge has left, and longer, never shorter than they would. Lives are prolonged when half of the
-- margin is used up, so most charges leave them as they are.
function save(w)
  local leaves = math.max(latest(w) * w.width, now) + w.length
  local prolonged = leaves + MARGIN / 2 > w.lives
  if prolonged then w.lives = leaves + MARGIN end
  local life = math.ceil((w.lives - now) / 1000)
  if w.whole and w.units > 0 then w.oldest = bucket(w, count(w) - 1) end
  local head = struct.pack(HEAD, w.units, w.leased, w.strict, w.minted, w.pruned, w.base, w.oldest, w.lives, w.format)
  if w.whole then
    redis.call('SET', w.state, head .. w.buckets, 'PX', life)
  else
    redis.call('SETRANGE', w.state, '0', head .. string.sub(w.buckets, 1, w.till))
    if prolonged then redis.call('PEXPIRE', w.state, life) end
  end
  if saveGrants(w) or prolonged then redis.call('PEXPIRE', w.grants, life) end
end

function used(w) return w.units end

function emptyIn(w) return w.units > 0 and latest(w) * w.width + w.length - now or 0 end

function full(w, units) return w.units + units > MAX_HELD end

-- Gives the bucket of what is charged with a score; nil where it has left already.
local function indexOf(w, score)
  local index = math.ceil(score / w.width)
  if index <= math.floor((now - w.length) / w.width) then return nil end
  return math.max(index, w.pruned + 1)
end

function charge(w, name, score, units)
  local index = indexOf(w, score)
  if not remember(w, name, index * w.width) then return false end
  add(w, index, units, isLease(name) and units or 0)
  return true
end

-- Takes out of a bucket what a grant had in it, and gives whether it has not left.
local function take(w, index, units, leased)
  if index <= w.pruned then return false end
  add(w, index, -units, leased and -units or 0)
  return true
end

function uncharge(w, name, _, units) take(w, recall(w, name) / w.width, units, isLease(name)) end

function soonest(w, units)
  local room, left, sure = w.limit - units, w.units, w.units - w.leased
  local certain
  if sure <= room then certain = now end
  if left <= room then return now, now end
  fold(w)
  readAll(w)
  local place = count(w)
  repeat
    place = place - 1
    local index, u, l = bucket(w, place)
    local leaves = index * w.width + w.length
    left, sure = left - u, sure - u + l
    if not certain and sure <= room then certain = leaves end
    if left <= room then return leaves, math.min(certain or leaves, leaves) end
  until place == 0
end

function free(w, start)
  local left = w.limit - w.units
  if start == now then return left end
  readAll(w)
  for place = count(w) - 1, 0, -1 do
    local index, units = bucket(w, place)
    if index * w.width > start - w.length then break end
    left = left + units
  end
  return left
end

local function spent(w, at, most)
  for j = at, #ARGV, 2 do
    local index = indexOf(w, now - tonumber(ARGV[j]))
    if index then add(w, math.min(index, most or index), tonumber(ARGV[j + 1]), 0) end
  end
end

function settle(w, name, _, units, kept, at)
  local place = recall(w, name)
  local index = place and place / w.width
  if not index or not take(w, index, units, isLease(name)) then return end
  spent(w, at, index)
  if kept > 0 then add(w, index, kept, 0) end
end

function cancel(w, call)
  for _, grant in ipairs(recallAll(w, call)) do take(w, grant[1] / w.width, grant[2], grant[3]) end
end

function record(w, _, at) spent(w, at, nil) end

leases = leasesAhead

-- The sums stay, empty, until they have expired: they know the last name.
function reset(w)
  w.changed = w.changed or w.units > 0
  clear(w)
end
