-- CONFIG, ErrorConfig, AccumulationConfig, the enumerations and the bit layout (rows T25 to T28).
local function with_saved_config(fn)
  local saved = get_config()
  local ok, message = pcall(fn)
  set_config(saved)
  if not ok then
    error(message, 0)
  end
end

test("T29: the settings of the transposed layout are kept and answered, and change no results", function()
  local z = torch.tensor({{0 / 0}, {1.0}, {2.0}})
  local before = flag_nan(z, "x")
  local _ <close> = set_config(ErrorConfig{use_transposed_layout = true, transpose_threshold = 2})
  eq({CONFIG.use_transposed_layout, CONFIG.transpose_threshold}, {true, 2})
  eq({CONFIG:should_transpose(2), CONFIG:should_transpose(3)}, {false, true})
  local f = triage.compile(function(x) return flag_nan(x, "x") end, {fullgraph = true})
  eq(f(z), before)
  eq(flag_nan(z, "x"), before)
  eq(f(z):stride(), before:stride())
end)

test("T25: defaults and derived values", function()
  eq(CONFIG.flag_dtype, torch.int64)
  eq(CONFIG.num_slots, 16)
  eq(CONFIG.default_severity, Severity.ERROR)
  eq(CONFIG.strict_validation, false)
  eq({CONFIG.slots_per_word, CONFIG.num_words, CONFIG.word_bits}, {4, 4, 64})
  local narrow = ErrorConfig{num_slots = 5, flag_dtype = torch.float32}
  eq({narrow.slots_per_word, narrow.num_words, narrow.word_bits}, {2, 3, 32})
  eq(CONFIG:should_transpose(1 << 40), false)
  eq(ErrorConfig{use_transposed_layout = true, transpose_threshold = 10}:should_transpose(11), true)
end)

test("T25: writes to CONFIG, set_config and get_config", function()
  with_saved_config(function()
    CONFIG.num_slots = 8
    eq(err.new_t(1).shape, {1, 2})
    eq(get_config().num_slots, 8)
    set_config(ErrorConfig{num_slots = 32})
    eq(CONFIG.num_slots, 32)
    get_config().num_slots = 12
    eq(CONFIG.num_slots, 12)
  end)
  eq(CONFIG.num_slots, 16, "restored")
end)

test("T25: a config of one operation leaves the global one alone", function()
  eq(err.new_t(1, {config = ErrorConfig{num_slots = 64}}).shape, {1, 16})
  eq(CONFIG.num_slots, 16)
end)

test("T25: set_config for the rest of a block", function()
  do
    local _ <close> = set_config(ErrorConfig{num_slots = 8})
    eq(CONFIG.num_slots, 8)
    do
      local _ <close> = set_config(ErrorConfig{num_slots = 4, strict_validation = true})
      eq({CONFIG.num_slots, CONFIG.strict_validation}, {4, true})
    end
    eq({CONFIG.num_slots, CONFIG.strict_validation}, {8, false})
    pcall(function()
      local _ <close> = set_config(ErrorConfig{num_slots = 2})
      error("on the way")
    end)
    eq(CONFIG.num_slots, 8)
  end
  eq(CONFIG.num_slots, 16)
  fails(function() set_config({num_slots = 3}) end, "expected an ErrorConfig")
end)

test("T27: dropped errors are counted in the last slot while track_overflow is on", function()
  local function work(z)
    local f = flag_nan(z, "a")
    for layer = 2, 6 do f = push(f, err.OVERFLOW, layer, {where = err.is_err(f)}) end
    return f
  end
  local compiled = triage.compile(work)
  with_saved_config(function()
    local z = torch.tensor({{1.0}, {0 / 0}})
    set_config(ErrorConfig{num_slots = 4})
    local plain = work(z)
    eq(compiled(z), plain)
    CONFIG.track_overflow = true
    eq(CONFIG.track_overflow, true)
    local f = work(z)
    eq(compiled(z), f, "the graph of the other configuration is not used")
    eq(flags.unpack(f, 0), {})
    local last = flags.unpack(f, 1)[4]
    eq({last.code_name, last.location, last.severity, last.location_name}, {"UNKNOWN", 3, err.ERROR, "(3 dropped)"})
    eq(flags.repr(f):match("; 3 dropped%)$"), "; 3 dropped)")
    eq(flags.summary(f)["(dropped)"].UNKNOWN, 3)
    eq(err.count_errors(f):totable(), {0, 4})
    CONFIG.track_overflow = false
    eq(work(z), plain)
    local own = {config = ErrorConfig{num_slots = 4, track_overflow = true}}
    eq(flags.unpack(f, 1, own)[4].location_name, "(3 dropped)")
    eq(flags.unpack_all(f, own)[2][4].location_name, "(3 dropped)")
    eq(flags.pretty_print(f, 1, own):match("@ (%(3 dropped%))"), "(3 dropped)")
    eq(#flags.to_table(f, own), 4)
    fails(function() flags.repr(f, {confg = own}) end, "the options are config and codes")
    fails(function() CONFIG.track_overflow = 1 end, "expected true or false")
    fails(function() return ErrorConfig{num_slots = 1, track_overflow = true} end, "2 or more with track_overflow")
  end)
end)

test("T25: captured code is made for the configuration it saw", function()
  local z = torch.full({3, 2}, 0 / 0)
  local own = ErrorConfig{num_slots = 4}
  local global = triage.compile(function(x) return err.new(x) end)
  local mine = triage.compile(function(x) return flag_nan(x, "config", nil, {config = own}) end)
  eq(global(z).shape, {3, 4})
  eq(mine(z).shape, {3, 1})
  do
    local _ <close> = set_config(ErrorConfig{num_slots = 32})
    eq(global(z).shape, {3, 8})
  end
  eq(global(z).shape, {3, 4})
  own.num_slots = 8
  eq(mine(z).shape, {3, 2})
  own.flag_dtype = torch.int32
  eq(mine(z), flag_nan(z, "config", nil, {config = own}))
end)

test("T25: captured code that changes a configuration runs as a script", function()
  local z = torch.ones({2, 2})
  local own = ErrorConfig{num_slots = 4}
  local function widen(x) own.num_slots = own.num_slots + 4 return err.new(x, {config = own}) end
  local f = triage.compile(widen)
  eq(f(z).shape, {2, 2})
  eq(f(z).shape, {2, 3})
  local function scoped(x) local _ <close> = set_config(ErrorConfig{num_slots = 8}) return err.new(x) end
  eq(triage.explain(scoped, z).graph_break_count, 1)
  local strict = triage.compile(scoped, {fullgraph = true})
  fails(function() strict(z) end, "`set_config` changes the configuration")
  eq(CONFIG.num_slots, 16)
  local born = triage.compile(function(x)
    local config = ErrorConfig{num_slots = 4}
    config.num_slots = 8
    return err.new(x, {config = config})
  end, {fullgraph = true})
  eq(born(z).shape, {2, 2})
end)

test("T25: wrong fields and values", function()
  fails(function() CONFIG.num_slot = 3 end, "did you mean 'num_slots'")
  fails(function() return CONFIG.nothing end, "there is no field 'nothing'")
  fails(function() CONFIG.num_words = 3 end, "cannot be set")
  fails(function() ErrorConfig{num_slots = 0} end, "num_slots")
  fails(function() ErrorConfig{num_slots = 32769} end, "num_slots")
  fails(function() ErrorConfig{flag_dtype = torch.float16} end, "flag_dtype")
  fails(function() ErrorConfig{flag_dtype = "int64"} end, "flag_dtype")
  fails(function() ErrorConfig{strict_validation = 1} end, "expected true or false")
  fails(function() AccumulationConfig{order = 2} end, "Order.FIRST or Order.LAST")
  fails(function() AccumulationConfig{prioritty = 0} end, "did you mean 'priority'")
  fails(function() AccumulationConfig{}.order = 1 end, "cannot be changed")
end)

test("T27: accumulation by name or by position", function()
  local a = AccumulationConfig{priority = Priority.SEVERITY, order = Order.LAST, dedupe = Dedupe.CODE}
  eq({a.priority, a.order, a.dedupe}, {1, 1, 1})
  eq(AccumulationConfig{Priority.SEVERITY, Order.LAST, Dedupe.CODE} == a, true)
  eq(AccumulationConfig(Priority.SEVERITY, Order.LAST, Dedupe.CODE) == a, true)
  eq(ErrorConfig{accumulation = a}.accumulation == a, true)
  eq({Priority.CHRONO, Priority.SEVERITY, Priority.LOCATION}, {0, 1, 2})
  eq({Dedupe.NONE, Dedupe.CODE, Dedupe.LOCATION, Dedupe.UNIQUE}, {0, 1, 2, 3})
end)

test("T28: the bit layout", function()
  eq({SLOT_BITS, SLOTS_PER_WORD, SLOT_MASK}, {16, 4, 0xFFFF})
  eq({SEVERITY_SHIFT, SEVERITY_BITS, SEVERITY_MASK}, {0, 2, 3})
  eq({CODE_SHIFT, CODE_BITS, CODE_MASK}, {2, 4, 0xF})
  eq({LOCATION_SHIFT, LOCATION_BITS, LOCATION_MASK}, {6, 10, 0x3FF})
end)
