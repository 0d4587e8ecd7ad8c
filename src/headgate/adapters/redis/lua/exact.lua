-- Exact arithmetic for the algorithms that multiply and divide.
--
-- Numbers in Lua are doubles, exact for whole numbers below 2^53. Instants are
-- microseconds (about 2^51 today), amounts at most 10^12 (2^40), periods at most ten
-- years (2^49), so a single product may not fit; mul_div works on such products exactly.

local floor = math.floor

-- floor(a * b / c) and the remainder, for whole a, b >= 0 and c > 0 whose quotient is below 2^53.
local function mul_div(a, b, c)
  local product = a * b
  if product < EXACT then
    local rest = product % c
    return (product - rest) / c, rest
  end
  -- Long division, the digits of a in a base so small that every step stays exact.
  local base = 2
  while (b + c) * base * 4 < EXACT do
    base = base * 2
  end
  local place = 1
  while place * base <= a do
    place = place * base
  end
  local quotient, rest = 0, 0
  while place >= 1 do
    local digit = floor(a / place)
    a = a - digit * place
    local step = rest * base + digit * b
    rest = step % c
    quotient = quotient * base + (step - rest) / c
    place = place / base
  end
  return quotient, rest
end

-- ceil(a * b / c)
local function mul_div_up(a, b, c)
  local quotient, rest = mul_div(a, b, c)
  if rest > 0 then
    return quotient + 1
  end
  return quotient
end
