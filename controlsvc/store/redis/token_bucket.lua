-- The token bucket, as the generic cell rate algorithm. Of a bucket there is a HASH: the instant at which it is full again,
-- in microseconds, full, and what is missing to the next microsecond: part, of as many parts as there are units in the rate,
-- parts. So a rate that does not divide its window is exact all the same.
--
-- A grant counts as spent at its end, all of it: full + units * T <= start + most * T, and then full' = max(full, stop) +
-- units * T, T = length / limit.
--
-- An instant does not tell what it would be without one of the grants. So the last charges are known as well: a LIST of them, in
-- their order, each with its stop, with full and part as they were before it, and with its name. What comes back is taken out,
-- and what came after it is charged anew. A list that does not end with the bucket as it is, is not of it, and nothing comes back.

local MAX_FULL = 1125899906842624 -- microseconds, to count with: 35 years

local MOST_KNOWN = 40 -- charges; of more the older half is forgotten, and stays charged
local BEFORE, BEFORE_SIZE = '<ddd', 24

-- The microseconds in which so many units flow in, rounded down, and the parts that are missing.
local function inflow(w, units) return divide(units, w.length, w.limit) end

function load(w)
  local bucket = redis.call('HMGET', w.keys[1], 'full', 'part', 'parts', 'minted', 'till')
  w.full, w.part = tonumber(bucket[1]) or 0, tonumber(bucket[2]) or 0
  w.minted, w.till = tonumber(bucket[4]) or 0, tonumber(bucket[5]) or 0
  local parts = tonumber(bucket[3]) or w.limit
  if parts == w.limit then return end
  if ARGV[1] == 'settle' or ARGV[1] == 'cancel' then
    w.limit = parts -- what comes back was charged at that rate
    return
  end
  w.another = true -- another rate than it was: nothing comes back, and no sooner full
  if w.part > 0 then w.full, w.part = w.full + 1, 0 end
end

-- Both keys live until the bucket has been full for a window, and longer; they are prolonged when half of the margin is left.
function save(w)
  local leaves = math.max(w.full, now) + w.length
  if leaves + MARGIN / 2 > w.till then w.till, w.fresh = leaves + MARGIN, true end
  redis.call('HSET', w.keys[1], 'full', w.full, 'part', w.part, 'minted', w.minted)
  if not (w.fresh or w.another) then return end
  redis.call('HSET', w.keys[1], 'parts', w.limit, 'till', w.till)
  local life = fmt(math.ceil((w.till - now) / 1000))
  for _, key in ipairs(w.keys) do redis.call('PEXPIRE', key, life) end
end

function emptyIn(w) return math.max(w.full + (w.part > 0 and 1 or 0) - now, 0) end

local function usedAt(w, at)
  if w.limit == 0 or w.full < at then return 0 end
  local units, rest = divide(w.full - at, w.limit, w.length)
  return units + math.ceil((rest + w.part) / w.length)
end

function used(w) return usedAt(w, now) end

function free(w, start) return w.most - usedAt(w, start) end

function soonest(w, units)
  local time, part = inflow(w, w.most - units)
  local at = math.max(now, w.full - time + (w.part > part and 1 or 0))
  return at, at
end

-- What ends while the units that the bucket keeps back flow in delays nothing after it. A lease that starts later may be a
-- little longer, or a bucket of one unit would have none.
function lasts(w, start, stop, units)
  if w.limit == 0 then return stop end
  local longest = inflow(w, w.most - units)
  if start > now then longest = math.max(longest, SHORTEST) end
  return math.min(stop, start + longest)
end

-- Lets a bucket, of the window w, be full later.
local function take(w, bucket, at, units)
  if bucket.full < at then bucket.full, bucket.part = at, 0 end
  if w.limit == 0 then return end
  local time, part = inflow(w, units)
  bucket.full, bucket.part = bucket.full + time, bucket.part + part
  if bucket.part >= w.limit then bucket.full, bucket.part = bucket.full + 1, bucket.part - w.limit end
end

-- Has a charge known that is about to be made. None before it matters where the bucket has been full for a window.
local function know(w, push, name, stop)
  if w.another or w.full + w.length <= now then redis.call('DEL', w.keys[2]) end
  local count = redis.call(push, w.keys[2], struct.pack(BEFORE, stop, w.full, w.part) .. name)
  w.fresh = w.fresh or count == 1
  if count > MOST_KNOWN then redis.call('LTRIM', w.keys[2], -MOST_KNOWN / 2, -1) end
end

-- Gives a known charge: its stop, its name, and the bucket as it was before.
local function unpackKnown(text)
  local stop, full, part = struct.unpack(BEFORE, text)
  return stop, string.sub(text, BEFORE_SIZE + 1), {full = full, part = part}
end

function full(w, units)
  return w.limit > 0 and w.full - now + (units + 1) * w.length / w.limit > MAX_FULL
end

function charge(w, name, score, units)
  know(w, 'RPUSH', name, score)
  take(w, w, score, units)
  w.changed = true
  return true
end

local function same(a, b) return a.full == b.full and a.part == b.part end

-- Takes out of the bucket what comes back, and charges anew what came after it, as far as that makes a difference. begins is how
-- the name of what may come back begins, behind its kind; remains gives what remains of such a one, its stop and its name: as they
-- were, others, or nil.
local function takeBack(w, begins, remains)
  local all, first, last = redis.call('LRANGE', w.keys[2], 0, -1), 0, 0
  local from, to = BEFORE_SIZE + #'c:' + 1, BEFORE_SIZE + #'c:' + #begins
  local function may(text) return string.sub(text, from, to) == begins end
  for j = #all, 1, -1 do
    if may(all[j]) then first, last = j, math.max(last, j) end
  end
  if first == 0 then return end
  local left, was, bucket, j = {}, nil, nil, first - 1
  repeat
    j = j + 1
    local stop, name, before = unpackKnown(all[j])
    if was and not same(was, before) then return end -- what came in between is not known
    was, bucket = before, bucket or {full = before.full, part = before.part}
    take(w, was, stop, unitsOf(name))
    if may(all[j]) then stop, name = remains(stop, name) end
    if stop then
      left[#left + 1] = struct.pack(BEFORE, stop, bucket.full, bucket.part) .. name
      take(w, bucket, stop, unitsOf(name))
    end
  until j == #all or j >= last and same(was, bucket)
  if j == #all then
    if not same(was, w) then return end -- it is not of this bucket
    w.full, w.part = bucket.full, bucket.part
  end
  for rest = j + 1, #all do left[#left + 1] = all[rest] end
  if first > 1 then
    redis.call('LTRIM', w.keys[2], 0, first - 2)
  else
    redis.call('DEL', w.keys[2])
    w.fresh = true
  end
  if #left > 0 then redis.call('RPUSH', w.keys[2], unpack(left)) end
  w.changed = true
end

-- The units that were spent count as spent with the last of them.
function settle(w, grant, _, _, kept, at)
  takeBack(w, string.sub(grant, #'c:' + 1), function(stop, name)
    if name ~= grant then return stop, name end
    local units = kept
    for j = at + 1, #ARGV, 2 do units = units + tonumber(ARGV[j]) end
    if units == 0 then return nil end
    if kept == 0 then stop = math.min(stop, now - tonumber(ARGV[at])) end
    return stop, 's::' .. fmt(units)
  end)
end

function cancel(w, call) takeBack(w, call, function() return nil end) end

-- The oldest are the last. They are known where something is that came before them.
function record(w, _, at)
  for j = #ARGV - 1, at, -2 do
    local stop, units = now - tonumber(ARGV[j]), tonumber(ARGV[j + 1])
    know(w, 'RPUSHX', 'r::' .. fmt(units), stop)
    take(w, w, stop, units)
  end
  w.changed = true
end

function reset(w)
  redis.call('DEL', w.keys[2])
  w.full, w.part, w.changed = 0, 0, true
end

