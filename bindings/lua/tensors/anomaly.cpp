#include "bindings/lua/tensors/anomaly.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/provenance.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bindings/lua/state/scopes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "runtime/capture/graph_break.h"

namespace triage::lua {
namespace {

struct AnomalyOptions {
  bool check_nan = true, check_inf = true;
  int64_t samples = 0;
};

const char anomalies = 0;  // its address: registry key of the innermost that is alive

/// While alive.
class Anomalies {
 public:
  Anomalies(lua_State* L, AnomalyOptions options)
      : lines_({[L] { return current_line(L); }, [] { return std::string(); }}),
        L_(L),
        options_(options),
        around_(current(L)) {
    set(this);
  }
  ~Anomalies() { set(around_); }
  Anomalies(const Anomalies&) = delete;
  Anomalies& operator=(const Anomalies&) = delete;

  static Anomalies* current(lua_State* L) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &anomalies);
    auto* const found = static_cast<Anomalies*>(lua_touserdata(L, -1));
    lua_pop(L, 1);
    return found;
  }
  const AnomalyOptions& options() const noexcept { return options_; }

 private:
  void set(Anomalies* now) {
    lua_pushlightuserdata(L_, now);
    lua_rawsetp(L_, LUA_REGISTRYINDEX, &anomalies);
  }

  const capture::ScriptScope lines_;
  const GradientTrace trace_;
  lua_State* const L_;
  const AnomalyOptions options_;
  Anomalies* const around_;
};

AnomalyOptions read_options(lua_State* L, int index) {
  AnomalyOptions options;
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    specialize_number(L, -1);
    if (key == "check_nan" && lua_isboolean(L, -1))
      options.check_nan = lua_toboolean(L, -1) != 0;
    else if (key == "check_inf" && lua_isboolean(L, -1))
      options.check_inf = lua_toboolean(L, -1) != 0;
    else if (key == "samples" && lua_isinteger(L, -1) && lua_tointeger(L, -1) > 0)
      options.samples = lua_tointeger(L, -1);
    else
      throw std::invalid_argument("torch.autograd.detect_anomaly: unknown option '" + key + "' or wrong value (" +
                                  describe(L, -1) +
                                  "); options are check_nan, check_inf (booleans) and samples (the batch size)");
  }
  return options;
}

std::string text_of(const Producer& producer, int64_t samples) {
  std::string text = std::string(code_name(producer.code)) + "  ";
  if (producer.kind == Producer::Kind::operation) text += "derivative of ";
  text += producer.name;
  if (!producer.source.file.empty()) text += fmt::format("  {}:{}", producer.source.file, producer.source.line);
  constexpr size_t most_rows = 8;
  const std::vector<int64_t>& rows = producer.rows;
  if (rows.empty()) return text;
  const size_t shown = std::min(rows.size(), most_rows);
  return text + fmt::format("  {} {}{} of {}", rows.size() == 1 ? "sample" : "samples",
                            fmt::join(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                            shown < rows.size() ? ", ..." : "", samples);
}

}  // namespace

int detect_anomaly(lua_State* L) {
  touch_autograd("`torch.autograd.detect_anomaly`");
  AnomalyOptions options;
  if (is_options(L, 1)) {
    options = read_options(L, 1);
    lua_remove(L, 1);
  }
  constexpr int function = 1;
  const bool for_block = lua_gettop(L) == 0;
  if (!for_block) check_callable(L, function, "torch.autograd.detect_anomaly");
  push_scope_of<Anomalies>(L, L, options);
  return for_block ? 1 : call_in_scope(L, function);
}

void check_gradients(lua_State* L, const std::string& what, const std::vector<at::Tensor>& outputs,
                     const std::vector<at::Tensor>& gradients) {
  const Anomalies* const anomalies = Anomalies::current(L);
  if (!anomalies) return;
  const AnomalyOptions& options = anomalies->options();
  const Provenance found = gradient_provenance(outputs, gradients, options.samples);
  if (found.outputs.empty()) return;  // what was bad on the way was kept out: by IF, WHERE or a repair
  std::string lines;
  for (const Producer& producer : found.producers)
    if (producer.code == err::nan ? options.check_nan : options.check_inf)
      lines += "\n  " + text_of(producer, found.samples);
  if (lines.empty()) return;
  throw std::runtime_error(
      what + ": gradients became bad where gradients that were fine came in, and none was written:" + lines);
}

}  // namespace triage::lua
