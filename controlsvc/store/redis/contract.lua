
-- What every algorithm defines, and what the operations call.

local function multiple(n, of)
  if n < of then return 0 end
  return n - n % of
end

-- Lets a key live for at least so many microseconds and the margin; never shorter than it would: it knows the latest instant,
-- and the last name, where all that it held was given back, too.
local function keep(key, life)
  local millis = math.ceil((life + MARGIN) / 1000)
  if redis.call('PTTL', key) < millis then redis.call('PEXPIRE', key, fmt(millis)) end
end

-- What an algorithm defines. A window w has its length, its limit, most and its keys; the others of its fields are the algorithm's
-- but for minted, the last grant's, and changed, which has save called in the end.
--
-- load(w)                      reads where the window stands, without what has left it
-- used(w)                      the units inside now
-- emptyIn(w)                   how long until nothing is inside, if nothing more is charged
-- free(w, start, stop, wanted) the units that may be granted from start, not before now, until stop; more than wanted
--                              need not be counted
-- soonest(w, units, ttl)       the first instant from now on at which so many, at most w.most, may be granted for ttl,
--                              if nothing more is charged; and the first at which that is so if all leases come back,
--                              at most the former
-- lasts(w, start, stop, units) until when a grant of units from start until stop may be spent
-- full(w, units)               whether that many more would be too many to count
-- charge(w, name, score, units)     a grant that may be spent until score; false where the window has one of that name
-- uncharge(w, name, score, units)   takes back what was charged just now
-- settle(w, name, settled, units, kept, at)  kept units of the grant keep their score, and ARGV has (age, units)... from at
--                              on; settled begins as the names of what is left may. Without effect where it is not there
-- cancel(w, call)              removes unsettled grants whose names go on with call after their kind
-- record(w, name, at)          charges (age, units)... whatever the limit
-- reset(w)                     forgets every charge, but not minted
-- leases(w)                    the leases that may still be spent: a table from their names to their ends
-- save(w)                      writes the window back, to live until its last charge has left, and longer
local load, used, emptyIn, free, soonest, full, charge, uncharge, settle, cancel, record, reset, save
local function lasts(_, _, stop) return stop end
local function leases() return {} end
