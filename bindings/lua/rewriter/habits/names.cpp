// Names of Python, NumPy and PyTorch that policies do not have.
#include <algorithm>
#include <array>
#include <cctype>

#include "bindings/lua/rewriter/habits/habits.h"

namespace triage::lua::rewriter {
namespace {

struct NameHint {
  std::string_view written, hint;
};

constexpr std::string_view kNil =
    "Lua writes nil; in an index a new axis is \"new\", as in x[{\":\", \"new\"}], and the open end of a range "
    "torch.None";
constexpr std::string_view kNan = "NaN is 0/0; to find it, write x:isnan()";
constexpr std::string_view kInf = "infinity is math.huge, or -math.huge; to find it, write x:isinf()";
constexpr std::string_view kTypedTensor = "write torch.tensor({1, 2}, {dtype = torch.float32})";
constexpr std::string_view kFlags =
    "flags begin with f = flag_nan_and_inf(x, \"x\") or f = err.new(x); for f\"x = {x}\" Lua writes "
    "string.format(\"%g\", x)";
constexpr std::string_view kTorch = "what makes tensors is in torch, as torch.zeros_like(x) and torch.cat({x, y})";
constexpr std::string_view kMethod = "tensors have methods, as in x:sum() and x:abs(); numbers have math.abs, math.max";
constexpr std::string_view kTable = "a list is a table, {1, 2}, and so is a dict, {a = 1}";
constexpr std::string_view kNumPy =
    "policies have torch and no NumPy: torch.where(m, x, y) for np.where, 0/0 for np.nan, math.huge for np.inf";
constexpr std::string_view kRaise = "Lua writes error(\"what is wrong\") for raise";

constexpr std::array kGlobals = std::to_array<NameHint>({
    {"None", kNil},
    {"null", kNil},
    {"NULL", kNil},
    {"True", "Lua writes true"},
    {"TRUE", "Lua writes true"},
    {"False", "Lua writes false"},
    {"FALSE", "Lua writes false"},
    {"nan", kNan},
    {"NaN", kNan},
    {"math.nan", kNan},
    {"torch.nan", kNan},
    {"inf", kInf},
    {"Inf", kInf},
    {"math.inf", kInf},
    {"torch.inf", kInf},
    {"math.isnan", "for a tensor write x:isnan(); a number n is NaN where n ~= n"},
    {"math.isinf", "for a tensor write x:isinf(); a number n is infinite where math.abs(n) == math.huge"},
    {"math.isfinite", "for a tensor write x:isfinite(); a number n is finite where math.abs(n) < math.huge"},
    {"len", "Lua writes #x for len(x); for a tensor too, or x:size(0)"},
    {"range", "Lua writes `for i = 0, n - 1 do ... end` for `for i in range(n):`"},
    {"enumerate", "Lua writes `for i, x in ipairs(t) do`, with i from 1; for a tensor `for i = 0, #x - 1 do`"},
    {"zip", "Lua writes `for i = 1, #a do local x, y = a[i], b[i]`"},
    {"float", "for a tensor write x:float(); NaN is 0/0, infinity math.huge, and tonumber reads text"},
    {"int", "for a tensor write x:int() or x:long(); for a number x // 1, which rounds down"},
    {"bool", "for a tensor write x:bool(); for a plain value x ~= 0"},
    {"str", "Lua writes tostring(x)"},
    {"repr", "Lua writes tostring(x)"},
    {"f", kFlags},
    {"isnan", "write x:isnan()"},
    {"isinf", "write x:isinf()"},
    {"isfinite", "write x:isfinite()"},
    {"zeros", kTorch},
    {"ones", kTorch},
    {"zeros_like", kTorch},
    {"ones_like", kTorch},
    {"full_like", kTorch},
    {"arange", kTorch},
    {"cat", kTorch},
    {"stack", kTorch},
    {"where", "write WHERE(m, a, b), or torch.where(m, a, b) with the gradient of PyTorch"},
    {"list", kTable},
    {"dict", kTable},
    {"tuple", kTable},
    {"set", kTable},
    {"abs", kMethod},
    {"sum", kMethod},
    {"max", kMethod},
    {"min", kMethod},
    {"round", kMethod},
    {"pow", kMethod},
    {"any", kMethod},
    {"all", kMethod},
    {"sorted", "for a tensor write x:sort(); table.sort(t) sorts a list in place"},
    {"isinstance", "Lua writes torch.is_tensor(x), or type(x) == \"number\""},
    {"hasattr", "Lua writes t.name ~= nil"},
    {"getattr", "Lua writes t[name]"},
    {"setattr", "Lua writes t[name] = value"},
    {"Exception", kRaise},
    {"ValueError", kRaise},
    {"RuntimeError", kRaise},
    {"np", kNumPy},
    {"numpy", kNumPy},
    {"F", "functions are in torch, and methods: torch.relu(x), x:relu()"},
    {"nn.functional", "functions are in torch, and methods: torch.relu(x), x:relu()"},
    {"torch.nn", "layers are in nn: nn.Linear(4, 2); functions are in torch: torch.relu(x)"},
    {"torch.optim", "optimizers are in optim, for scripts of triage exec"},
    {"torch.Tensor", kTypedTensor},
    {"torch.FloatTensor", kTypedTensor},
    {"torch.LongTensor", kTypedTensor},
    {"torch.from_numpy", "policies have no NumPy; torch.load reads .npy files"},
    {"torch.cuda", "tensors stay on the device of the inputs; x.device says which, x:to(\"cuda\") moves one"},
    {"torch.compile", "triage captures a policy by itself; a script writes triage.compile(fn)"},
    {"torch.inference_mode", "write `local _ <close> = torch.no_grad()`"},
    {"torch.newaxis", "write x[{\"new\"}] for a new axis in front, or x:unsqueeze(dim)"},
    {"torch.pi", "write math.pi"},
    {"torch.e", "write math.exp(1)"},
    {"math.e", "write math.exp(1)"},
    {"math.pow", "Lua writes x ^ y for math.pow(x, y)"},
    {"torch.empty", "policies make no tensors with unknown values: write torch.zeros({2, 3})"},
    {"torch.empty_like", "policies make no tensors with unknown values: write torch.zeros_like(x)"},
    {"torch.normalize", "write x / x:norm(2, 1, true):clamp_min(1e-12) to divide rows by their norm"},
    {"nn.Softmax", "nn has layers with weights; functions are methods: x:softmax(-1)"},
    {"nn.Sigmoid", "nn has layers with weights; functions are methods: x:sigmoid()"},
    {"nn.Tanh", "nn has layers with weights; functions are methods: x:tanh()"},
    {"relu", "functions are in torch, and methods: torch.relu(x), x:relu()"},
    {"softmax", "functions are in torch, and methods: torch.softmax(x, -1), x:softmax(-1)"},
    {"sigmoid", "functions are in torch, and methods: torch.sigmoid(x), x:sigmoid()"},
    {"tanh", "functions are in torch, and methods: torch.tanh(x), x:tanh()"},
    {"table.append", "Lua writes table.insert(t, x), or t[#t + 1] = x"},
    {"string.join", "Lua writes table.concat(t, \", \")"},
});

constexpr std::array kMethods = std::to_array<NameHint>({
    {"astype", "write x:to(torch.float32), or x:float()"},
    {"numpy", "Lua has no arrays of NumPy: x:totable() reads the values into a table"},
    {"copy", "write x:clone()"},
    {"H", "write x.mT, or x:mH() for complex numbers"},
    {"is_nan", "write x:isnan()"},
    {"is_inf", "write x:isinf()"},
    {"is_cuda", "write x.device ~= \"cpu\""},
    {"data", "write x:detach()"},
    {"values", "an operator with two results returns both: local values, indices = x:max(1)"},
    {"indices", "an operator with two results returns both: local values, indices = x:max(1)"},
    {"empty_like", "policies make no tensors with unknown values: write torch.zeros_like(x)"},
    {"normalize", "write x / x:norm(2, 1, true):clamp_min(1e-12) to divide rows by their norm"},
    {"fillna", "write x:nan_to_num(0.0)"},
    {"append", "tensors do not grow: torch.cat({a, b}, 0)"},
    {"format", "write string.format(\"%g\", x:item())"},
    {"__len__", "write #x, or x:size(0)"},
    {"__getitem__", "write x[i]"},
});

// Of tables and texts.
constexpr std::array kFields = std::to_array<NameHint>({
    {"append", "Lua writes table.insert(t, x), or t[#t + 1] = x"},
    {"extend", "Lua writes `for i, x in ipairs(more) do table.insert(t, x) end`"},
    {"items", "Lua writes `for key, value in pairs(t) do`"},
    {"keys", "Lua writes `for key in pairs(t) do`"},
    {"values", "Lua writes `for key, value in pairs(t) do`"},
    {"join", "Lua writes table.concat(t, \", \")"},
    {"split", "Lua writes `for word in text:gmatch(\"%S+\") do`"},
    {"strip", "Lua writes text:match(\"^%s*(.-)%s*$\")"},
    {"startswith", "Lua writes text:sub(1, #start) == start"},
    {"replace", "Lua writes text:gsub(pattern, by)"},
});

template <size_t n>
std::string_view hint_in(const std::array<NameHint, n>& table, std::string_view name) {
  const auto* const found =
      std::find_if(table.begin(), table.end(), [&](const NameHint& each) { return each.written == name; });
  return found == table.end() ? std::string_view() : found->hint;
}

}  // namespace

std::string_view hint_of_name(std::string_view path) { return hint_in(kGlobals, path); }

std::string_view hint_of_field(std::string_view name) { return hint_in(kFields, name); }

std::string hint_of_method(std::string_view name) {
  const bool is_word =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (is_word) return std::string(hint_in(kMethods, name));
  const std::string table = index_as_table("x", name);
  if (table.find(":flip(") != std::string::npos) return "a step back is a flip: " + table;
  return table.empty() ? "" : "a range is a table: " + table;
}

}  // namespace triage::lua::rewriter
