
-- The grants of a count that is not of charges: those that may still be settled or cancelled, and where in the count they are,
-- which is an instant.
--
-- They lie in pages, a HASH of STRINGs: a page has its grants one after the other, the first minted first, each of packed
-- numbers and of what its name has from call to minted. So a lease takes up no more where thousands are out. One page has the
-- strict charges, of too many only the younger half, else a count of a million requests would hold a million names. Of leases
-- there is a page for each quarter of the window's length since 1970, of those minted in it. What comes when it is full goes
-- into a page of the next level, for a quarter of the time; the last level's are never full. For all that a script reads
-- it has to collect again, and to find a grant in a page is to read it.
--
-- Pages are written when their window is saved.

local MOST_STRICT = 20
local STRICT = 'c'     -- the page
local LEVELS = 6
local FULL_PAGE = 1460 -- bytes: with another grant it just fits into memory of 1.5 kB
local MAX_PAGE = MAX_CHARGES * 8

-- A grant: where, units, minted, and then call:part: in text. No number of minted's size ends with a byte that text may have,
-- and a text is longer than the rest of a number: where a page has a grant's last numbers and text, it has that grant.
local NUMBERS, NUMBERS_SIZE = '<I7I5I7', 19
local WHERE, WHERE_SIZE = '<I7', 7
local MAX_PACKED = 1099511627776 -- what units are less than; more than the units of any rate
local TEXT = '^[^:]*:[^:]*:'

-- Gives when a grant was minted, and all that its page has of it but for where; nil where it cannot have been granted.
local function packed(name)
  local text, minted, units = string.match(name, '^.:([^:]*:[^:]*:)(%d+):(%d+)$')
  minted, units = tonumber(minted), tonumber(units)
  if units >= MAX_PACKED then return nil end
  return minted, struct.pack('<I5I7', units, minted) .. text
end

local function fieldOf(w, level, minted) return level .. ':' .. fmt(math.floor(minted * 4 ^ level / w.length)) end

local function page(w, field)
  local text = w.pages[field]
  if not text then
    text = redis.call('HGET', w.grants, field) or ''
    w.pages[field] = text
  end
  return text
end

local function write(w, field, text)
  w.pages[field], w.written[field], w.changed = text, true, true
end

-- Gives where in a page what comes after a grant begins.
local function after(text, at)
  local _, last = string.find(text, TEXT, at + NUMBERS_SIZE)
  return last + 1
end

-- Looks through the pages that some(text) wants, and forgets the grants which gone(where, units, minted, text, field) says are to
-- go.
local function visit(w, some, gone)
  for _, field in ipairs(redis.call('HKEYS', w.grants)) do
    local text = some(field) and page(w, field) or ''
    local kept, from, at = {}, 1, 1
    while at <= #text do
      local where, units, minted = struct.unpack(NUMBERS, text, at)
      local next = after(text, at)
      if gone(where, units, minted, string.sub(text, at + NUMBERS_SIZE, next - 1), field) then
        kept[#kept + 1] = string.sub(text, from, at - 1)
        from = next
        if field == STRICT then w.strict = math.max(w.strict - 1, 0) end
      end
      at = next
    end
    if from > 1 then
      kept[#kept + 1] = string.sub(text, from)
      write(w, field, table.concat(kept))
    end
  end
end

-- Remembers a grant; false where it is there already.
local function remember(w, name, where)
  local minted, grant = packed(name)
  local field, text, level = STRICT, nil, 0
  repeat
    level = level + 1
    if isLease(name) then field = fieldOf(w, level, minted) end
    text = page(w, field)
  until #text < FULL_PAGE or level == LEVELS
  if #text >= MAX_PAGE then error(redis.error_reply('FULL a window of the key holds too much')) end
  if string.find(text, grant, 1, true) then return false end
  text = text .. struct.pack(WHERE, where) .. grant
  if field == STRICT then
    w.strict = w.strict + 1
    if w.strict >= MOST_STRICT then
      local at = 1
      while w.strict > MOST_STRICT / 2 and at <= #text do
        w.strict, at = w.strict - 1, after(text, at)
      end
      text = string.sub(text, at)
    end
  end
  write(w, field, text)
  return true
end

-- Forgets a grant, and gives where it was; nil where it is not there.
local function recall(w, name)
  local minted, grant = packed(name)
  for level = 1, minted and LEVELS or 0 do
    local field = isLease(name) and fieldOf(w, level, minted) or STRICT
    local text = page(w, field)
    local at = string.find(text, grant, 1, true)
    if at then
      write(w, field, string.sub(text, 1, at - WHERE_SIZE - 1) .. string.sub(text, at + #grant))
      if field == STRICT then w.strict = math.max(w.strict - 1, 0) end
      return (struct.unpack(WHERE, text, at - WHERE_SIZE))
    end
    if field == STRICT then return nil end
  end
end

-- Forgets the leases that are nowhere after an instant. They were minted before it.
local function forget(w, till)
  visit(w, function(field)
    local level, number = string.match(field, '^(%d):(%d+)$')
    return level and number * w.length / 4 ^ level <= till
  end, function(where) return where <= till end)
end

-- Forgets the grants whose calls, or calls and parts, these are, and gives of each where it was, its units, and if it is a lease.
local function recallAll(w, call)
  local found = {}
  visit(w, function(field) return string.find(page(w, field), call, 1, true) end, function(where, units, _, text, field)
    if string.sub(text, 1, #call) ~= call then return false end
    found[#found + 1] = {where, units, field ~= STRICT}
    return true
  end)
  return found
end

-- Gives the leases that are somewhere after now.
local function leasesAhead(w)
  local live = {}
  visit(w, function(field) return field ~= STRICT end, function(where, units, minted, text)
    if where > now then live['l:' .. text .. fmt(minted) .. ':' .. fmt(units)] = where end
    return false
  end)
  return live
end

-- Writes the pages, and says whether one is new, with which the key may be, and so without an end.
local function saveGrants(w)
  local new = 0
  for field in pairs(w.written) do
    if w.pages[field] == '' then
      redis.call('HDEL', w.grants, field)
    else
      new = new + redis.call('HSET', w.grants, field, w.pages[field])
    end
  end
  return new > 0
end
