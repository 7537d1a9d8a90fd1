-- The operations, the same for all algorithms. Each answers an array, all but inspect one of numbers, and most
-- an empty one.

local count = tonumber(ARGV[2])
local perWindow = #KEYS / count
local windows = {}
for i = 1, count do
  local w = {
    length = tonumber(ARGV[3 * i]), limit = tonumber(ARGV[3 * i + 1]), most = tonumber(ARGV[3 * i + 2]), keys = {}, changed = false,
  }
  for j = 1, perWindow do w.keys[j] = KEYS[(i - 1) * perWindow + j] end
  load(w)
  windows[i] = w
end

-- Two grants may fall into one microsecond, and the clock may step back; a name is never given twice all the same.
local function mint()
  local minted = now
  for _, w in ipairs(windows) do minted = math.max(minted, w.minted + 1) end
  for _, w in ipairs(windows) do w.minted, w.changed = minted, true end
  return minted
end

local function saveAll()
  for _, w in ipairs(windows) do
    if w.changed then save(w) end
  end
end

-- Appends, for each window, the units inside and how long until it is empty.
local function standing(answer)
  for _, w in ipairs(windows) do
    table.insert(answer, used(w))
    table.insert(answer, emptyIn(w))
  end
  return answer
end

-- call, part, want, min, ttl, horizon -> {units, minted, start, end, denied, retry, certain, window, standing...}
-- denied: 0 no, 1 for so long, 2 for ever; window: the place of the one that denies for the longest.
local function reserve(at)
  local want, min = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local ttl, horizon = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])

  -- nil: never
  local function soonestOfAll()
    local all, certain, window = now, now, 1
    for i, w in ipairs(windows) do
      if min > w.most then return nil end
      local a, c = soonest(w, min, ttl)
      if a > all then all, window = a, i end
      certain = math.max(certain, c)
    end
    return all, certain, window
  end

  -- The units for a grant from start, and until when. A lease that is too short is a strict charge, or nothing.
  local function freeFrom(start)
    local units, stop = want, start + ttl
    for _, w in ipairs(windows) do units = math.min(units, free(w, start, stop, want)) end
    units = multiple(units, min)
    for _, w in ipairs(windows) do stop = math.min(stop, lasts(w, start, stop, units)) end
    if stop - start >= math.min(ttl, SHORTEST) then return units, stop end
    return start == now and units or 0, start
  end

  local start, units, stop = now, freeFrom(now)
  if units == 0 and ttl > 0 and horizon > 0 then
    local all = soonestOfAll()
    if all and all <= now + horizon then
      start = all
      units, stop = freeFrom(start)
    end
  end

  local answer = {0, 0, 0, 0, 0, 0, 0, 1}
  if units > 0 then
    for _, w in ipairs(windows) do
      if full(w, units) then return redis.error_reply('FULL a window of the key holds too much') end
    end
    local kind = stop > now and 'l' or 'c'
    local minted = mint()
    local name = table.concat({kind, ARGV[at], ARGV[at + 1], fmt(minted), fmt(units)}, ':')
    for i, w in ipairs(windows) do
      if not charge(w, name, stop, units) then -- it is there already: whose it is, nobody knows
        for j = 1, i - 1 do uncharge(windows[j], name, stop, units) end
        return redis.error_reply('TWICE the key holds a charge of this name')
      end
    end
    answer[1], answer[2], answer[3], answer[4] = units, minted, start - now, stop - now
  end
  if want - units >= min then
    local all, certain, window = soonestOfAll()
    if all then
      answer[5], answer[6], answer[7], answer[8] = 1, all - now, certain - now, window
    else
      answer[5] = 2
    end
  end
  saveAll()
  return standing(answer)
end

-- units, how many leases to tell -> {standing and when so many units are free, or -1 for never..., name, age, end...}
local function inspect(at, answer)
  local units, most = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local ends, names = {}, {}
  for _, w in ipairs(windows) do
    table.insert(answer, used(w))
    table.insert(answer, emptyIn(w))
    local free = -1
    if units <= w.most then free = soonest(w, units, 0) - now end
    table.insert(answer, free)
    for name, stop in pairs(leases(w)) do ends[name] = math.min(stop, ends[name] or stop) end
  end
  for name in pairs(ends) do table.insert(names, name) end
  table.sort(names, function(a, b) return ends[a] < ends[b] or ends[a] == ends[b] and a < b end)
  for j = 1, math.min(#names, most) do
    table.insert(answer, names[j])
    table.insert(answer, now - tonumber(string.match(names[j], ':(%d+):%d+$')))
    table.insert(answer, ends[names[j]] - now)
  end
end

local at = 3 + 3 * count
if ARGV[1] == 'reserve' then return reserve(at) end
local answer = {}
if ARGV[1] == 'settle' then
  -- name of the grant, the same as a settled charge's begins, units, units that keep their score, (age, units)...
  local units, kept = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  for _, w in ipairs(windows) do settle(w, ARGV[at], ARGV[at + 1], units, kept, at + 4) end
elseif ARGV[1] == 'cancel' then
  -- call: or call:part:, what the grants' names have
  for _, w in ipairs(windows) do cancel(w, ARGV[at]) end
elseif ARGV[1] == 'record' then
  -- call, units, (age, units)...
  local units = tonumber(ARGV[at + 1])
  for _, w in ipairs(windows) do
    if full(w, units) then return redis.error_reply('FULL a window of the key holds too much') end
  end
  local name = table.concat({'r', ARGV[at], '', fmt(mint())}, ':')
  for _, w in ipairs(windows) do record(w, name, at + 2) end
elseif ARGV[1] == 'peek' then
  -- -> {standing...}
  standing(answer)
elseif ARGV[1] == 'inspect' then
  inspect(at, answer)
else -- reset
  for _, w in ipairs(windows) do reset(w) end
end
saveAll()
return answer
