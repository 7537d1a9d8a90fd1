-- What the fixed window and the sliding window counter share: fixed windows, aligned to 1970 and numbered from there. Of one
-- length there are
--
--   counts, a HASH: for each window that still matters its units, under its number, and of those what leases may give back,
--           under its number with an l; minted; at, the latest instant at which it was written; and strict, how many
--           strict charges there are in
--   grants, each at its end
--
-- A lease ends with its window, so all of it is of one window. Where the clock steps back, time stands still until it has
-- caught up, for an earlier window's count may be gone.

local MAX_WINDOWS = 512 -- with counts: the current one, and those in which a lease will start

-- How many windows before the current one still matter; the algorithm says.
local before

function load(w)
  w.counts, w.grants, w.pages, w.written = w.keys[1], w.keys[2], {}, {}
  w.units, w.leased, w.held, w.new, w.minted, w.strict = {}, {}, 0, {}, 0, 0
  local fields = redis.call('HGETALL', w.counts)
  for j = 1, #fields, 2 do
    local field, value = fields[j], tonumber(fields[j + 1])
    local number, leased = string.match(field, '^(%d+)(l?)$')
    if field == 'minted' then
      w.minted = value
    elseif field == 'at' then
      now = math.max(now, value)
    elseif field == 'strict' then
      w.strict = value
    elseif leased == 'l' then
      w.leased[tonumber(number)] = value
    else
      w.units[tonumber(number)], w.held = value, w.held + 1
    end
  end
end

local function numberAt(w, at) return math.floor(at / w.length) end
local function unitsOfWindow(w, number) return w.units[number] or 0 end
local function certainOfWindow(w, number) return (w.units[number] or 0) - (w.leased[number] or 0) end

local function add(w, number, units, leased)
  if number < numberAt(w, now) - before then return end -- it does not matter any more
  if not w.units[number] then w.held = w.held + 1 end
  w.units[number] = unitsOfWindow(w, number) + units
  w.leased[number] = (w.leased[number] or 0) + leased
  w.new[number], w.changed = true, true
end

function save(w)
  local oldest, latest = numberAt(w, now) - before, 0
  local set, gone = {}, {}
  for number, units in pairs(w.units) do
    local name = fmt(number)
    if number < oldest or units == 0 then
      table.insert(gone, name)
      table.insert(gone, name .. 'l')
    else
      latest = math.max(latest, number)
      if w.new[number] then
        for _, value in ipairs({name, fmt(units), name .. 'l', fmt(w.leased[number])}) do table.insert(set, value) end
      end
    end
  end
  if #gone > 0 then
    redis.call('HDEL', w.counts, unpack(gone))
    forget(w, oldest * w.length - 1)
  end
  for _, value in ipairs({'at', fmt(now), 'minted', fmt(w.minted), 'strict', fmt(w.strict)}) do table.insert(set, value) end
  redis.call('HSET', w.counts, unpack(set))
  saveGrants(w)
  -- A window after the end of the last, even where nothing of it matters so long: before, a step back has to find it.
  local life = math.max((latest + 2) * w.length - now, 0)
  for _, key in ipairs(w.keys) do keep(key, life) end
end

function full(w, units)
  local held = units
  for _, n in pairs(w.units) do held = held + n end
  return held > MAX_HELD / 2 or w.held >= MAX_WINDOWS
end

function charge(w, name, score, units)
  if not remember(w, name, score) then return false end
  add(w, numberAt(w, score), units, isLease(name) and units or 0)
  return true
end

function uncharge(w, name, _, units) add(w, numberAt(w, recall(w, name)), -units, isLease(name) and -units or 0) end

function settle(w, name, _, units, kept, at)
  local score = recall(w, name)
  if not score then return end
  local back = units - kept
  for j = at + 1, #ARGV, 2 do back = back - tonumber(ARGV[j]) end
  add(w, numberAt(w, score), -back, isLease(name) and -units or 0)
end

function cancel(w, call)
  for _, grant in ipairs(recallAll(w, call)) do
    local score, units, leased = unpack(grant)
    add(w, numberAt(w, score), -units, leased and -units or 0)
  end
end

function record(w, _, at)
  for j = at, #ARGV, 2 do add(w, numberAt(w, now - tonumber(ARGV[j])), tonumber(ARGV[j + 1]), 0) end
end

leases = leasesAhead

function reset(w)
  redis.call('DEL', w.grants)
  w.pages, w.written = {}, {}
  for number in pairs(w.units) do w.units[number] = 0 end
  w.strict, w.changed = 0, true
end

function emptyIn(w)
  local latest = -1
  for number, units in pairs(w.units) do
    if units > 0 then latest = math.max(latest, number) end
  end
  return math.max((latest + 1 + before) * w.length - now, 0)
end

function lasts(w, start, stop) return math.min(stop, (numberAt(w, start) + 1) * w.length - 1) end

