
-- The grants of a count that is not of charges: a HASH from the names of those that may still be settled or cancelled to where
-- in the count they are. Of too many strict charges only the younger half is known: else a count of a million requests would
-- hold a million names.

local MOST_STRICT = 20
local NAMES = 1000 -- that are forgotten at once

-- Forgets the grants that have left, which left says of where they are, and the older strict charges of too many; gives how
-- many strict charges are known.
local function forget(grants, left)
  local all, strict, gone = redis.call('HGETALL', grants), {}, {}
  for j = 1, #all, 2 do
    if left(tonumber(all[j + 1])) then
      gone[#gone + 1] = all[j]
    elseif not isLease(all[j]) then
      strict[#strict + 1] = {all[j], tonumber(string.match(all[j], ':(%d+):%d+$'))}
    end
  end
  local known = #strict
  if known >= MOST_STRICT then
    table.sort(strict, function(a, b) return a[2] < b[2] end)
    known = MOST_STRICT / 2
    for j = 1, #strict - known do gone[#gone + 1] = strict[j][1] end
  end
  for j = 1, #gone, NAMES do redis.call('HDEL', grants, unpack(gone, j, math.min(j + NAMES - 1, #gone))) end
  return known
end

