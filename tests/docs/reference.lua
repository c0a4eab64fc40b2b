-- docs/reference.md against what is there: every name of a policy and of a script has its row, and every row a name.
-- `triage exec tests/docs/reference.lua`, from the root of the project.
local root = arg[1] and arg[1] .. "/" or ""

local function read(path)
  local file = assert(io.open(root .. path))
  local text = file:read("a")
  file:close()
  return text
end

--- Names in the first cells of the page's tables, and whether its row is for trusted scripts alone.
local function names_of(page)
  local names = {}
  for cell in page:gmatch("\n| (`[^|\n]*)") do
    for code in cell:gmatch("`([^`]+)`") do
      local name = code:match("^[%w_]+[%w_%.]*")
      names[name] = cell:find("†", 1, true) ~= nil
    end
  end
  return names
end

local function value_of(name)
  local value = _G
  for part in name:gmatch("[^%.]+") do
    value = value[part]
    if value == nil then return nil end
  end
  return value
end

local page, problems = read("docs/reference.md"), {}
local names = names_of(page)

local in_policy, of_libraries = {}, {math = true, string = true, table = true, utf8 = true}
for name in read("tests/lua/sandbox/policy_environment.golden"):gmatch("([%w_%.]+) %l+\n") do in_policy[name] = true end

local count = 0
for name, trusted in next, names do
  count = count + 1
  local value = value_of(name)
  if value == nil then
    problems[#problems + 1] = "the page has `" .. name .. "`, which is not there"
  elseif name:find("^torch%.") and type(value) == "userdata" then
    if trusted then problems[#problems + 1] = "`" .. name .. "` is there in policies too" end
  elseif in_policy[name] == trusted then
    problems[#problems + 1] = "`" .. name .. "` is marked as for trusted scripts alone, and is not"
  elseif not in_policy[name] and not trusted then
    problems[#problems + 1] = "`" .. name .. "` is not there in policies; mark its row with †"
  end
end

--- A name, or all that the tables below it hold.
local function expect(name, value, nesting)
  local library = name:match("^[^%.]+")
  if of_libraries[library] and library ~= name then return end
  if type(value) == "table" and nesting < 2 and not of_libraries[name] then
    for key, field in next, value do
      if type(key) == "string" then expect(name .. "." .. key, field, nesting + 1) end
    end
  elseif names[name] == nil and not page:find("`" .. name .. (type(value) == "table" and "" or "`"), 1, true) then
    problems[#problems + 1] = "the page has no `" .. name .. "`"
  end
end

local standard = {_G = true, coroutine = true, debug = true, io = true, os = true, package = true}
for name, value in next, _G do
  if type(name) == "string" and not standard[name] then expect(name, value, 1) end
end
for name in next, in_policy do
  local value = value_of(name)
  if type(value) ~= "table" then expect(name, value, 1) end
end

table.sort(problems)
assert(count > 200, "the page's tables were not found")
assert(#problems == 0, "docs/reference.md:\n  " .. table.concat(problems, "\n  "))
print(count .. " names")
