-- The public names that a C++ header declares, read without a compiler: functions, types with their public members,
-- enums with their values, constants, aliases, concepts and macros, with their namespaces but for `triage`.
-- Constructors count as their class, overloads as one name. Destructors, assignments, comparisons, friends and
-- forward declarations are no names. What it does not understand is an error.

--- The text without comments, strings, attributes and directives, and the names of the macros that it defines.
local function stripped(text)
  local macros = {}
  text = text:gsub('"[^"\n]*"', '""'):gsub("//[^\n]*", ""):gsub("/%*.-%*/", "")
  text = ("\n" .. text):gsub("\n%s*#([^\n]*)", function(directive)
    macros[#macros + 1] = directive:match("^%s*define%s+([%w_]+)")
    return "\n"
  end)
  return text:gsub("%[%[.-%]%]", ""):gsub("TRIAGE_API ", ""), macros
end

--- On one line, without `template <...>` and what stands inside parentheses.
local function shortened(declaration)
  local count
  declaration = declaration:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", "")
  repeat declaration, count = declaration:gsub("^template ?%b<> ?", "") until count == 0
  return (declaration:gsub("%b()", "()"):gsub("^requires ?%(%) ?", ""))
end

local function is_type(head) return head:find("^class ") or head:find("^struct ") or head:find("^enum ") end

local function is_function(head)
  head = head:gsub("operator ?[=!<>+]+", "operator"):gsub("%b<>", "")
  return head:find("()", 1, true) and not head:find("=", 1, true)
end

--- The declaration at `from`: its head, shortened; the inside of a namespace or type; where the next one begins.
local function declaration_at(text, from)
  local at = from
  while true do
    local bracket = assert(text:find("[;{(]", at), "a declaration without end")
    local kind = text:sub(bracket, bracket)
    local head = shortened(text:sub(from, bracket - 1))
    if kind == ";" then return head, nil, bracket + 1 end
    local _, last = text:find(kind == "{" and "%b{}" or "%b()", bracket)
    assert(last, "a bracket without end")
    if kind == "{" then
      local inside = text:sub(bracket + 1, last - 1)
      if head:find("^namespace ") then return head, inside, last + 1 end
      if is_type(head) then return head, inside, assert(text:find(";", last, true)) + 1 end
      if is_function(head) then return head, nil, last + 1 end
    end
    at = last + 1  -- arguments, or an initialiser
  end
end

--- Nothing where it is a function, but none of those that are names.
local function function_name(head, class)
  if head:find("operator%(%) ?%(%)") then return "operator()" end
  local operator = head:match("%f[%w]operator ?([^(]+)%(%)")
  if operator then
    if operator:find("^[=!<>+]+ ?$") then return nil end
    return "operator" .. (operator:find("^%a") and " " or "") .. operator
  end
  local name = head:match("^[^=]*"):gsub("%b<>", ""):match("(~?[%w_]+) ?%(%)")
  if name ~= class and not name:find("~", 1, true) then return name end
end

--- Fields, variables and constants: `int a, b = 1` are two.
local function variable_names(head)
  local names = {}
  head = head:gsub("%(%)", ""):gsub("%b{}", ""):gsub("%b<>", "")
  for part in (head .. ","):gmatch("([^,]*),") do
    names[#names + 1] = part:gsub("=.*", ""):match("([%w_]+) ?$")
  end
  assert(names[1] and head:find("[%w_>&*] ?[%w_]+"), "what is this: " .. head)
  return names
end

local function names_of(head, class)
  local alias = head:match("^using ([%w_]+) =") or head:match("^concept ([%w_]+) =")
  if alias then return {alias} end
  if head == "" or is_type(head) then return {} end
  if head:find("^friend ") or head:find("^using ") or head:find("= delete$") then return {} end
  if is_function((head:gsub("= ?%w+$", ""))) then return {function_name(head, class)} end
  return variable_names(head)
end

local function read_scope(text, prefix, class, visible, add)
  local at = text:find("%S")
  while at do
    local access, behind = text:match("^(p%l+)%s*:()", at)
    if access and text:sub(behind, behind) ~= ":" then
      visible, at = access == "public", behind
    else
      local head, inside
      head, inside, at = declaration_at(text, at)
      local name = inside and head:gsub("^enum class ", "enum "):match("^%l+ ([%w_:]*%w)")
      if inside and head:find("^namespace ") then
        local below = name:gsub("^triage$", ""):gsub("^triage::", "")
        read_scope(inside, below == "" and prefix or prefix .. below .. "::", nil, true, add)
      elseif inside and visible then
        add(prefix .. name)
        if head:find("^enum ") then
          for value in inside:gmatch("([%w_]+)[^,]*") do add(prefix .. name .. "::" .. value) end
        else
          read_scope(inside, prefix .. name .. "::", name, head:find("^struct ") ~= nil, add)
        end
      elseif visible and not inside then
        for _, declared in ipairs(names_of(head, class)) do add(prefix .. declared) end
      end
    end
    at = text:find("%S", at)
  end
end

--- {name = true}
return function(text)
  local names = {}
  local code, macros = stripped(text)
  for _, macro in ipairs(macros) do names[macro] = true end
  read_scope(code, "", nil, true, function(name) names[name] = true end)
  return names
end
