-- Flags from elsewhere, with any bits in any slot: questions, as a script and compiled on every backend, and readers
-- say what all slots say, whatever number of them the configuration uses. TRIAGE_DIFFERENTIAL=N tries N of them,
-- TRIAGE_DIFFERENTIAL_SEED begins elsewhere.
local random, pick, seeds = random_programs(24, 15485863)

local integers = {int64 = torch.int64, int32 = torch.int32, float32 = torch.int32, float64 = torch.int64}

local function severity(slot) return slot & 3 end
local function code(slot) return slot >> 2 & 15 end

--- Any words of a configuration, and their slots.
local function draw()
  local carrier = pick({"int64", "int32", "float32", "float64"})
  local config = ErrorConfig{num_slots = pick({1, 2, 3, 5, 6, 7, 16, 18}), flag_dtype = torch[carrier]}
  local per, words, slots = config.slots_per_word, {}, {}
  for sample = 1, pick({1, 2, 5}) do
    words[sample], slots[sample] = {}, {}
    for word = 1, config.num_words do
      local value = 0
      for k = 0, per - 1 do
        local slot = random(3) == 1 and random(65536) - 1 or 0
        table.insert(slots[sample], slot)
        value = value | slot << 16 * k
      end
      if per == 2 and value >= 1 << 31 then value = value - (1 << 32) end
      words[sample][word] = value
    end
  end
  return config, slots, torch.tensor(words, {dtype = integers[carrier]}):view(torch[carrier])
end

local function live_of(slots)
  local live = {}
  for _, slot in ipairs(slots) do
    if severity(slot) ~= 0 then live[#live + 1] = slot end
  end
  return live
end

--- What the questions of `ask` say of these slots.
local function expected(slots, wanted)
  local live, worst, coded, in_domain = live_of(slots), 0, false, false
  for _, slot in ipairs(live) do
    worst = math.max(worst, severity(slot))
    coded = coded or code(slot) == wanted
    in_domain = in_domain or code(slot) >> 2 == wanted >> 2
  end
  return {#live == 0, #live > 0, worst == 3, coded, coded, in_domain, #live, worst, slots[#slots]}
end

local function ask(config, wanted, last)
  local own = {config = config}
  return function(f)
    return err.is_ok(f, own), err.is_err(f, own), err.has_critical(f, own), err.has_code(f, wanted, own),
      find(wanted, f, own), err.has_domain(f, wanted >> 2, own), err.count_errors(f, own), err.max_severity(f, own),
      err.get_slot(f, last, own)
  end
end

local function check(seed)
  local config, slots, f = draw()
  local wanted, last = random(16) - 1, config.num_words * config.slots_per_word - 1
  local asked = ask(config, wanted, last)
  local forms = {script = asked}
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    forms[backend] = triage.compile(asked, {backend = backend, fullgraph = true})
  end
  for name, form in pairs(forms) do
    for _ = 1, 2 do   -- what was captured answers the second call
      local answers = {form(f)}
      for sample = 1, #slots do
        local given = {}
        for i, answer in ipairs(answers) do given[i] = answer[sample - 1]:item() end
        eq(given, expected(slots[sample], wanted), ("seed %d, %s, sample %d"):format(seed, name, sample - 1))
      end
    end
  end
  local total = 0
  for sample = 1, #slots do
    local entries, live = flags.unpack(f, sample - 1, {config = config}), live_of(slots[sample])
    eq(#entries, #live)
    for i, slot in ipairs(live) do
      eq({entries[i].severity, entries[i].code, entries[i].location}, {severity(slot), code(slot), slot >> 6})
    end
    total = total + #live
  end
  local text = flags.repr(f, {config = config})
  assert(text:find(total == 0 and "no errors" or (", %d errors"):format(total), 1, true), text)
end

test("T07 T13: questions and readers agree on any words, as a script and compiled", function()
  for seed in seeds() do check(seed) end
end)
