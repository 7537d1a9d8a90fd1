-- Gives a * b / c rounded down, and the remainder, both exact where the quotient is below 2^53: a, b, c are whole, c is
-- positive and below 2^50.
local function divide(a, b, c)
  if a * b < 9007199254740992 then
    local rest = math.fmod(a * b, c)
    return (a * b - rest) / c, rest
  end
  local whole, part = math.floor(b / c), math.fmod(b, c)
  local quotient, rest, bit = 0, 0, 1
  while bit * 2 <= a do bit = bit * 2 end
  while bit >= 1 do -- a's binary digits, the highest first
    quotient, rest = quotient * 2, rest * 2
    if a >= bit then
      a, quotient, rest = a - bit, quotient + whole, rest + part
    end
    while rest >= c do quotient, rest = quotient + 1, rest - c end
    bit = bit / 2
  end
  return quotient, rest
end

