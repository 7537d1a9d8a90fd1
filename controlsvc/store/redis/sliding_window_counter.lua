-- The sliding window counter: the units of the current window, and of those of the window before the share that a window
-- which ends now overlaps, rounded up.

before = 1

local function usedAt(w, at)
  local number = numberAt(w, at)
  local whole, rest = divide(unitsOfWindow(w, number - 1), (number + 1) * w.length - at, w.length)
  return unitsOfWindow(w, number) + whole + (rest > 0 and 1 or 0)
end

function used(w) return usedAt(w, now) end

function free(w, start) return w.limit - usedAt(w, start) end

-- In the first window with room there is room when so little of it is left that the share of the window before fits in.
local function firstFree(w, room, unitsIn)
  local number = numberAt(w, now)
  while true do
    local left, earlier = room - unitsIn(w, number), unitsIn(w, number - 1)
    if left >= earlier then return math.max(now, number * w.length) end
    if left >= 0 then
      local time = divide(left, w.length, earlier)
      if time > 0 then return math.max(now, (number + 1) * w.length - time) end
    end
    number = number + 1
  end
end

function soonest(w, units)
  return firstFree(w, w.limit - units, unitsOfWindow), firstFree(w, w.limit - units, certainOfWindow)
end

