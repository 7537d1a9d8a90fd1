-- The token bucket, as the generic cell rate algorithm. Of a bucket there is a HASH: the instant at which it is full again,
-- in microseconds, full, and what is missing to the next microsecond: part, of as many parts as there are units in the rate,
-- parts. So a rate that does not divide its window is exact all the same.
--
-- A grant counts as spent at its end, all of it: full + units * T <= start + most * T, and then full' = max(full, stop) +
-- units * T, T = length / limit.
-- What was granted does not come back: the bucket does not know what it would be without it.

local MAX_FULL = 1125899906842624 -- microseconds, to count with: 35 years

-- The microseconds in which so many units flow in, rounded down, and the parts that are missing.
local function inflow(w, units) return divide(units, w.length, w.limit) end

function load(w)
  local bucket = redis.call('HMGET', w.keys[1], 'full', 'part', 'parts', 'minted')
  w.full, w.part = tonumber(bucket[1]) or 0, tonumber(bucket[2]) or 0
  w.minted = tonumber(bucket[4]) or 0
  if w.part > 0 and tonumber(bucket[3]) ~= w.limit then -- another rate than it was: no sooner full
    w.full, w.part = w.full + 1, 0
  end
end

function save(w)
  redis.call('HSET', w.keys[1], 'full', fmt(w.full), 'part', fmt(w.part), 'parts', fmt(w.limit), 'minted', fmt(w.minted))
  keep(w.keys[1], math.max(w.full - now, 0) + w.length)
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

local function take(w, at, units)
  if w.full < at then w.full, w.part = at, 0 end
  if w.limit > 0 then
    local time, part = inflow(w, units)
    w.full, w.part = w.full + time, w.part + part
    if w.part >= w.limit then w.full, w.part = w.full + 1, w.part - w.limit end
  end
  w.changed = true
end

function full(w, units)
  return w.limit > 0 and w.full - now + (units + 1) * w.length / w.limit > MAX_FULL
end

function charge(w, _, score, units)
  take(w, score, units)
  return true
end

function settle() end
function cancel() end

-- The oldest are the last.
function record(w, _, at)
  for j = #ARGV - 1, at, -2 do take(w, now - tonumber(ARGV[j]), tonumber(ARGV[j + 1])) end
end

function reset(w) w.full, w.part, w.changed = 0, 0, true end

