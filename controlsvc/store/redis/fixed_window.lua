-- The fixed window: each window has its count, and the next begins with nothing.

before = 0

function used(w) return unitsOfWindow(w, numberAt(w, now)) end

function free(w, start) return w.limit - unitsOfWindow(w, numberAt(w, start)) end

local function firstFree(w, room, unitsIn)
  local number = numberAt(w, now)
  while unitsIn(w, number) > room do number = number + 1 end
  return math.max(now, number * w.length)
end

function soonest(w, units)
  return firstFree(w, w.limit - units, unitsOfWindow), firstFree(w, w.limit - units, certainOfWindow)
end

