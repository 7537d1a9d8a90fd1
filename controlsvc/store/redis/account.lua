
-- What a window of a sliding log consists of: its charges, a ZSET of one member for each charge, scored with the latest instant
-- at which the charge may be spent; and its account, a STRING of six packed numbers: what the members sum up to and what of
-- that is leased, how many members there are, the highest of their scores, the last grant's minted, and until when both keys
-- live. Printed, and read again as text, they would take longer than all the rest of a script.
--
-- A member is a grant's name, or, after a settle or in a record, kind:call:part:minted:place:units with the kinds s, what
-- was left of a grant when it was settled, and r, what was recorded. None ever takes another's place.

local PAGE = 100 -- members that are read at once
local ACCOUNT, ACCOUNT_SIZE = '<dddddd', 48

-- Gives until when both keys are to live where the last charge leaves at an instant: as long as they do already, for as long as
-- half of the margin is left. So most charges leave the time to live as it is.
local function livesTill(till, leaves)
  if leaves + MARGIN / 2 <= till then return till end
  return leaves + MARGIN
end
