-- Load whose every answer is checked:
--   wrk -t2 -c64 -d60s --latency -s tests/serve/load.lua URL -- REQUEST.json RESPONSE.json
-- REQUEST is sent again and again; an answer is right when it has the scores of RESPONSE, to rounding.
local threads = {}

function setup(thread)
  table.insert(threads, thread)
end

local function contents(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function scores(body)
  local found = {}
  for number in (string.match(body, '"data":%[([^%]]*)%]') or ""):gmatch("[^,]+") do
    table.insert(found, tonumber(number))
  end
  return found
end

function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = contents(args[1])
  expected = scores(contents(args[2]))
  assert(#expected > 0, "the response to compare with has no scores")
  answers, wrong = 0, 0
end

local function right(status, body)
  if status ~= 200 then return false end
  local got = scores(body)
  if #got ~= #expected then return false end
  for i, score in ipairs(expected) do
    if math.abs(got[i] - score) > 1e-6 then return false end
  end
  return true
end

function response(status, headers, body)
  answers = answers + 1
  if not right(status, body) then
    wrong = wrong + 1
    if wrong == 1 then io.stderr:write("a wrong answer: " .. status .. " " .. body .. "\n") end
  end
end

function done(summary, latency, requests)
  local answers, wrong, e = 0, 0, summary.errors
  for _, thread in ipairs(threads) do
    answers = answers + thread:get("answers")
    wrong = wrong + thread:get("wrong")
  end
  print(string.format("answers: %d, wrong: %d, lost: %d", answers, wrong, e.connect + e.read + e.write + e.timeout))
end
