-- The table of layers. A row says which arguments a layer of PyTorch takes, which parameters and buffers it has, and
-- which operators it calls; the constructor, its checks, and what tostring shows are made of that. The files that
-- follow have the rows.
local core = ...
local arguments = core.arguments
local modules = core.modules
local nn = modules.nn
local math, next, rawequal, setmetatable = math, next, rawequal, setmetatable
local tonumber, tostring, type = tonumber, tostring, type
local concat, insert, pack = table.concat, table.insert, table.pack
local sqrt = math.sqrt
local None = torch.None

-- Arguments

local function misfit(operation, name, expected, value)
  core.fail(("%s: expected %s as `%s`, got %s"):format(operation, expected, name, core.describe(value)))
end

local function is_whole(value, low)
  return math.type(value) == "integer" and value >= low
end

local function length_of(list)
  local count = 0
  for _ in next, list do
    count = count + 1
  end
  return count == #list and count or -1
end

local words = {"an integer", "one or two integers", "one or three integers"}

--- `count` integers of at least `low`: an integer stands for all of them.
local function integers(operation, name, value, count, low)
  value = core.plain(value)
  local list = value
  if type(value) ~= "table" then
    list = {}
    for position = 1, count do
      list[position] = value
    end
  end
  local kept = {}
  for position = 1, count do
    kept[position] = core.plain(list[position])
    if length_of(list) ~= count or not is_whole(kept[position], low) then
      local expected = words[count] or ("a list of %d integers"):format(count)
      misfit(operation, name, ("%s of at least %d"):format(expected, low), value)
    end
  end
  return kept
end

--- Any number of integers, from `low` on: an integer stands for a list of it.
local function shape(operation, name, value, low)
  value = core.plain(value)
  local list, kept = type(value) == "table" and value or {value}, {}
  for position = 1, length_of(list) do
    kept[position] = core.plain(list[position])
    if not is_whole(kept[position], low) then
      misfit(operation, name, "integers of at least " .. low, value)
    end
  end
  if #kept == 0 then
    misfit(operation, name, "a list of integers", value)
  end
  return kept
end

local function choice(operation, name, value, detail)
  value = core.plain(value)
  local allowed = {}
  for word in detail:gmatch("[^|]+") do
    if word == value or tonumber(word) and tonumber(word) == value then
      return value
    end
    insert(allowed, '"' .. word .. '"')
  end
  misfit(operation, name, concat(allowed, " or "), value)
end

local function whole_from(low)
  return function(operation, name, value)
    value = core.plain(value)
    return is_whole(value, low) and value or misfit(operation, name, "an integer of at least " .. low, value)
  end
end

local function lists_from(low)
  return function(operation, name, value, detail)
    return integers(operation, name, value, tonumber(detail), low)
  end
end

local function number_where(expected, fits)
  return function(operation, name, value)
    value = core.plain(value)
    return type(value) == "number" and fits(value) and value or misfit(operation, name, expected, value)
  end
end

--- By the word in a row: function(operation, name, value, detail) gives the value as the layer keeps it.
local kinds = {
  count = whole_from(1),
  whole = whole_from(0),
  integer = whole_from(math.mininteger),
  sizes = lists_from(1),        -- sizes(2): two
  pads = lists_from(0),
  crops = lists_from(math.mininteger),
  shape = function(operation, name, value) return shape(operation, name, value, 1) end,
  padding = function(operation, name, value, detail)
    if value == "same" or value == "valid" then
      return value
    elseif type(value) == "string" then
      misfit(operation, name, 'integers, "same" or "valid"', value)
    end
    return integers(operation, name, value, tonumber(detail), 0)
  end,
  one = choice,
  number = number_where("a number", function() return true end),
  positive = number_where("a number above 0", function(value) return value > 0 end),
  probability = number_where("a probability (0..1)", function(value) return value >= 0 and value <= 1 end),
  boolean = function(operation, name, value)
    value = core.plain(value)
    if type(value) ~= "boolean" then
      misfit(operation, name, "a boolean", value)
    end
    return value
  end,
  tensor = arguments.tensor,
  callable = arguments.callable,
  module = function(operation, name, value) return modules.check(operation, name, value) end,
  any = function(operation, name, value)
    if value == nil then
      misfit(operation, name, "a value", value)
    end
    return value
  end,
}

local function default_of(text)
  if text == "true" or text == "false" then
    return text == "true"
  end
  return tonumber(text) or text
end

--- "name:kind(detail)?!=default": `?` takes None, `!` is not kept as a field, and one without a default must be given.
local function read_signature(text)
  local list = {}
  for part in text:gmatch("%S+") do
    local name, kind, rest = part:match("^([%w_]+):([%w_]+)(.*)$")
    local detail, marks, default = rest:match("^(%b())([?!]*)(.*)$")
    if not detail then
      marks, default = rest:match("^([?!]*)(.*)$")
    end
    local argument = {name = name, check = kinds[kind], detail = detail and detail:sub(2, -2)}
    argument.optional = marks:find("?", 1, true) ~= nil
    argument.hidden = marks:find("!", 1, true) ~= nil
    argument.required = default == "" and not argument.optional
    if default ~= "" then
      argument.default = default_of(default:sub(2))
    end
    insert(list, argument)
  end
  return list
end

local function is_options(value)
  if type(value) ~= "table" or core.is_tensor(value) or modules.is(value) or core.is_callable(value) then
    return false
  end
  return next(value) == nil or type(next(value)) == "string"
end

--- The values that were given, by the names of the arguments.
local function given(row, operation, ...)
  local list, options = pack(...), {}
  if list.n > #row.arguments + 1 then
    core.fail(("%s: expected at most %d arguments, got %d"):format(operation, #row.arguments + 1, list.n))
  end
  if list.n > 0 and is_options(list[list.n]) then
    options = arguments.options(operation, list[list.n], row.allowed)
    list.n = list.n - 1
  end
  if list.n > #row.arguments then
    core.fail(("%s: expected at most %d arguments, and a table of options behind them, got %d")
      :format(operation, #row.arguments, list.n))
  end
  local values = {}
  for position = 1, list.n do
    values[row.arguments[position].name] = list[position]
  end
  for name, value in next, options do
    if values[name] ~= nil then
      core.fail(("%s: `%s` is given twice, as an argument and as an option"):format(operation, name))
    end
    values[name] = value
  end
  return values
end

--- The same, checked, with the defaults of what is not there.
local function checked(row, operation, values)
  for _, argument in ipairs(row.arguments) do
    local name, value = argument.name, values[argument.name]
    if rawequal(value, None) and argument.optional then
      values[name] = nil
    else
      if value == nil then
        value = argument.default
      end
      if value ~= nil or argument.required then
        values[name] = argument.check(operation, name, value, argument.detail)
      end
    end
  end
  return values
end

-- What tostring shows

local function shown(value)
  if type(value) == "table" and not core.is_tensor(value) then
    local parts = {}
    for position, item in ipairs(value) do
      parts[position] = shown(item)
    end
    return "(" .. concat(parts, ", ") .. ")"
  elseif math.type(value) == "float" then
    return ("%g"):format(value)
  end
  return value == nil and "None" or tostring(value)
end

--- A template is the text with {name} for the field of this name.
local function describe_with(repr)
  if type(repr) ~= "string" then
    return repr
  end
  return function(self)
    return (repr:gsub("{([%w_]+)}", function(name) return shown(self[name]) end))
  end
end

-- Tensors of a new layer

local Maker = {}
Maker.__index = Maker

function Maker:draw(how, sizes, a, b)
  return core.new_tensor(self.operation, how, sizes, self.dtype, self.device, a, b)
end

function Maker:uniform(sizes, bound)
  return self:draw("uniform", sizes, -bound, bound)
end

function Maker:constant(sizes, value)
  return self:draw("constant", sizes, value)
end

--- How many inputs each output of a weight has.
local function fan_in(sizes)
  local count = 1
  for position = 2, #sizes do
    count = count * sizes[position]
  end
  return count
end

--- kaiming_uniform_ with a = sqrt(5), as Linear and the convolutions have it; bits and all.
function Maker:kaiming(sizes)
  local slope = sqrt(5)
  local gain = sqrt(2.0 / (1 + slope ^ 2))
  return self:uniform(sizes, sqrt(3.0) * (gain / sqrt(fan_in(sizes))))
end

--- xavier_uniform_ of a matrix.
function Maker:xavier(sizes)
  return self:uniform(sizes, sqrt(3.0) * sqrt(2.0 / (sizes[1] + sizes[2])))
end

function Maker:buffer(module, name, sizes, value)
  module:register_buffer(name, self:draw("buffer", sizes, value))
end

function Maker:weight_and_bias(module, sizes, outputs, with_bias)
  module.weight = self:kaiming(sizes)
  if with_bias then
    module.bias = self:uniform({outputs}, 1 / sqrt(fan_in(sizes)))
  end
end

-- Rows

local rows = {}

local function prepare(row)
  if row.class then
    return row
  end
  row.arguments = read_signature(row.__signature)
  row.allowed = {}
  for _, argument in ipairs(row.arguments) do
    row.allowed[argument.name] = true
  end
  if row.placed then
    row.allowed.dtype, row.allowed.device = true, true
  end
  row.methods = row.methods or {}
  row.methods.forward = row.forward
  row.class = modules.class_of(row.methods)
  row.describe = describe_with(row.repr or "")
  for name, metamethod in next, row.meta or {} do
    row.class[name] = metamethod
  end
  modules.register(row.name, row.class, row.describe, row.mixes)
  return row
end

local function construct(row, ...)
  prepare(row)
  local operation = "nn." .. row.name
  local values = checked(row, operation, given(row, operation, ...))
  local module = modules.new(row.class, row.name, row.describe)
  for _, argument in ipairs(row.arguments) do
    if not argument.hidden and values[argument.name] ~= nil then
      module[argument.name] = values[argument.name]
    end
  end
  if row.init then
    row.init(module, values, setmetatable({operation = operation, dtype = values.dtype, device = values.device}, Maker))
  end
  return module
end

--- nn[name], of the row:
---   __signature  see read_signature
---   init        function(self, values, make): tensors and further fields
---   forward     function(self, ...)
---   repr        a template, or function(self)
---   placed      takes dtype and device, as it has tensors
---   methods     others than forward
---   meta        metamethods
---   mixes       function(self): why a sample's result depends on the other samples; nil where it does not
local function layer(name, signature, row)
  row.name, row.__signature = name, signature   -- which parameters_of (values/describe.cpp) reads, too
  rows[name] = row
  nn[name] = function(...)
    return construct(row, ...)
  end
end

--- A class that capsules name is there though nobody has made a layer of it yet.
modules.find_late(function(name)
  return rows[name] and prepare(rows[name])
end)

core.layers = {add = layer, integers = integers, shape = shape, misfit = misfit, shown = shown, make = construct,
               rows = rows}
