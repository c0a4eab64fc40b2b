-- Every golden sequence of tests/data/flags.txt (format: tests/data/pack_flags_vectors.py) through the operations as
-- scripts call them: step by step, and each sequence once more as one captured graph.
local integers = {int64 = torch.int64, int32 = torch.int32, float32 = torch.int32, float64 = torch.int64}

local function words_of(line)
  local words = {}
  for word in line:gmatch("%S+") do words[#words + 1] = word end
  return words
end

--- One word of a record: its slots, four hexadecimal digits each, the first in the lowest bits.
local function packed(record, word, slots_per_word)
  local value = 0
  for slot = 0, slots_per_word - 1 do
    local at = (word * slots_per_word + slot) * 4
    value = value | (tonumber(record:sub(at + 1, at + 4), 16) or 0) << 16 * slot
  end
  if slots_per_word == 2 and value >= 1 << 31 then value = value - (1 << 32) end
  return value
end

local function read_flags(case, words)
  local rows = {}
  for i = 2, #words do
    local row = {}
    for word = 0, case.config.num_words - 1 do
      row[word + 1] = packed(words[i] == "-" and "" or words[i], word, case.config.slots_per_word)
    end
    rows[i - 1] = row
  end
  return torch.tensor(rows, {dtype = case.integer}):view(case.config.flag_dtype)
end

local function new_case(words)
  local config = ErrorConfig{
    accumulation = AccumulationConfig{
      priority = Priority[words[2]], order = Order[words[3]], dedupe = Dedupe[words[4]]},
    num_slots = tonumber(words[5]), flag_dtype = torch[words[6]]}
  return {config = config, integer = integers[words[6]], samples = tonumber(words[7]), steps = {}, expected = {}}
end

local function tensor_of(words, first, dtype)
  local values = {}
  for i = first, #words do values[#values + 1] = tonumber(words[i]) end
  return torch.tensor(values, {dtype = dtype})
end

--- The step that a line tells of, as a function from flags to flags.
local function step_of(case, words)
  local what, config = words[1], case.config
  local location, severity, code = tonumber(words[2]), tonumber(words[3]), tonumber(words[4])
  if what == "codes" then
    local codes = tensor_of(words, 4, torch.int64)
    return function(f) return err.push(f, codes, location, {severity = severity, config = config}) end
  elseif what == "where" then
    local bits = {}
    for bit in words[5]:gmatch(".") do bits[#bits + 1] = bit == "1" end
    local mask = torch.tensor(bits)
    return function(f) return err.push(f, code, location, {severity = severity, where = mask, config = config}) end
  elseif what == "scalar" then
    return function(f) return err.push_scalar(f, code, location, {severity = severity, config = config}) end
  elseif what == "merge" then
    local other = read_flags(case, words)
    return function(f) return err.merge(f, other, {config = config}) end
  end
  assert(what == "clear", what)
  local cleared = tonumber(words[2])
  return function(f) return err.clear(f, cleared) end
end

local function cases()
  local list, case = {}, nil
  for line in io.lines("tests/data/flags.txt") do
    local words = words_of(line)
    if words[1] == "case" then
      case = new_case(words)
      list[#list + 1] = case
    elseif words[1] == "=" then
      case.expected[#case.steps] = read_flags(case, words)
    elseif words[1] ~= "?" then
      case.steps[#case.steps + 1] = step_of(case, words)
    end
  end
  return list
end

local function same_bits(case, a, b)
  return torch.equal(a:view(case.integer), b:view(case.integer))
end

test("T02 T05 T06 T10 T26 T27: every golden sequence, eager and captured", function()
  local all = cases()
  eq(#all, 1372)
  for number, case in ipairs(all) do
    local start = err.new_t(case.samples, {config = case.config})
    local f = start
    for i, step in ipairs(case.steps) do
      f = step(f)
      if not same_bits(case, f, case.expected[i]) then error(("case %d, step %d"):format(number, i)) end
    end
    local whole = triage.compile(function(flags)
      for _, step in ipairs(case.steps) do flags = step(flags) end
      return flags
    end, {fullgraph = true})
    for call = 1, 2 do   -- the first records, the second runs the graph
      if not same_bits(case, whole(start), f) then error(("case %d, captured, call %d"):format(number, call)) end
    end
  end
end)
