-- One key under one algorithm: one operation, executed whole, at one reading of Redis' clock.
--
-- A script is this file, contract.lua, the algorithm's files and operations.lua. There is one more, of this file, account.lua
-- and strict.lua, which says what else it takes.
--
-- KEYS  for each window as many as the algorithm has
-- ARGV  the operation, how many windows there are, for each its length, the units of its rate and the most of them that
--       can be had at once, and what the operation takes: see operations.lua.
--
-- Instants are microseconds since 1970 and durations microseconds: whole numbers below 2^53, which a Lua number and a score
-- hold exactly. Lua would print one as 1.7637192001235e+15, so fmt prints every number that becomes part of a text.
--
-- A grant's name is kind:call:part:minted:units; kind is l, a lease, which may come back, or c, a strict charge. No two
-- grants of a key have the same.

local MARGIN = 10000000      -- how long a key outlives its last charge: clocks and replicas need not agree to the microsecond
local MAX_CHARGES = 1048576  -- in one window
local MAX_HELD = 4503599627370496
local SHORTEST = 20000       -- that a lease lasts: a shorter one would be over before its answer is there

local time = redis.call('TIME')
local nowText = time[1] .. string.format('%06d', time[2])
local now = tonumber(nowText)

local function fmt(n) return string.format('%.0f', n) end
local function unitsOf(name) return tonumber(string.match(name, ':(%d+)$')) end
local function isLease(name) return string.byte(name) == 108 end -- l
