-- docs/cpp-reference.md against the headers: every public name has its row below its header, and every row a name.
-- `triage exec tests/docs/cpp_reference.lua "$PWD" runtime/include/triage/*.h`, from the root of the project.
local root = arg[1] .. "/"
local names_in = dofile(root .. "tests/docs/cpp_names.lua")

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("a")
  file:close()
  return text
end

-- What the reader of headers understands.
local example = names_in([==[
#define MACRO 1
namespace other { class Forward; }
namespace triage { class Forward;  // class Comment {};
inline constexpr int64_t FLAG = 1 << 5, MASK = FLAG - 1;
enum class Kind : uint8_t { a = 0, b, /* c */ };
template <class T, class U = std::pair<T, T>>
concept Pointer = requires(const T& p) { p.get(); };
using Step = std::function<void(int)>;
[[noreturn]] void fails(const std::string& text = "};{", Step step = {});
namespace inner { auto f() -> std::vector<int>; }
struct Options { Step on_event = {}; std::chrono::seconds wait{5}; std::string text, hint; struct Nested { int x; }; };
class Thing : public Base {
  int hidden;
 public:
  explicit Thing(int x) : hidden(x) {}
  Thing(const Thing&) = delete;
  Thing& operator=(Thing&&) noexcept;
  ~Thing();
  int operator[](int i) const { if (i) { return i; } return 0; }
  int operator()(int i);
  explicit operator bool() const;
  friend bool operator==(const Thing&, const Thing&) = default;
  template <Pointer T> requires std::same_as<T, int> Thing chain(T t) && { return *this; }
  virtual void abstract() = 0;
 protected:
  void secret();
};
}
]==])
local understood = {
  "MACRO", "FLAG", "MASK", "Kind", "Kind::a", "Kind::b", "Pointer", "Step", "fails", "inner::f",
  "Options", "Options::on_event", "Options::wait", "Options::text", "Options::hint",
  "Options::Nested", "Options::Nested::x",
  "Thing", "Thing::operator[]", "Thing::operator()", "Thing::operator bool", "Thing::chain", "Thing::abstract",
}
for _, name in ipairs(understood) do
  assert(example[name], "cpp_names.lua does not find " .. name)
  example[name] = nil
end
assert(next(example) == nil, "cpp_names.lua finds what is no public name: " .. tostring(next(example)))

local problems = {}
local function problem(...) problems[#problems + 1] = string.format(...) end

-- The headers: {header = {name = true}}.
local declared, unread, count = {}, {}, 0
for i = 2, #arg do
  local header = "triage/" .. arg[i]:match("[^/]+$")
  local fine, names = pcall(names_in, read(arg[i]))
  if fine then
    declared[header] = names
    for _ in next, names do count = count + 1 end
  else
    unread[header] = true
    problem("%s was not understood: %s; mend tests/docs/cpp_names.lua", header, names)
  end
end

-- The page: {header = {name = line}}; `space::*` stands for all of a namespace (not of a class).
local listed, header, number = {}, nil, 0
for line in (read(root .. "docs/cpp-reference.md") .. "\n"):gmatch("([^\n]*)\n") do
  number = number + 1
  if line:find("^#") then header = line:match("^### (triage/[%w_]+%.h)$") end
  local cell, says = line:match("^| (`.-`) | (.*) |$")
  if cell and header then
    if not says:find("%a") then problem("line %d of the page does not say what %s does", number, cell) end
    listed[header] = listed[header] or {}
    for code in cell:gmatch("`([^`]+)`") do
      local name = code:match("^[%w_:]-operator%(%)") or code:match("^[%w_:]-operator[^%w_%s(]+")
        or code:match("^[%w_:]-operator %a[%w_]*") or code:match("^[%w_:]+%*?") or code
      listed[header][name] = number
    end
  elseif line:find("^| `") then
    problem("line %d of the page stands below no heading `### triage/NAME.h`, or has not two cells", number)
  end
end

for of, names in next, declared do
  local here = listed[of] or {}
  for name in next, names do
    local space = name:match("^([%w_]+)::")
    if not here[name] and not (space and not names[space] and here[space .. "::*"]) then
      problem("%s declares `%s`, and the page has no row for it: add `| `%s` | what it does |` below `### %s`",
              of, name, name, of)
    end
  end
end
for of, names in next, listed do
  for name, line in next, names do
    local found = declared[of] and declared[of][name]
    if declared[of] and name:find("%*$") then
      for other in next, declared[of] do found = found or other:sub(1, #name - 1) == name:sub(1, -2) end
    end
    if not found and not unread[of] then
      problem("line %d of the page has `%s`, which %s does not declare: take it out, or put it below its header",
              line, name, of)
    end
  end
end

table.sort(problems)
assert(count > 500, "the headers were not found")
assert(#problems == 0, "docs/cpp-reference.md:\n  " .. table.concat(problems, "\n  "))
print(count .. " names")
