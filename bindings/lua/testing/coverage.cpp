#include "bindings/lua/testing/coverage.h"

#include "bindings/lua/flags/prelude.h"
#include "bindings/lua/sandbox/sandbox.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/testing/sources.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/compat/readable_values.h"

#include <ATen/ATen.h>
#include <triage/flags.h>

#include <algorithm>

namespace triage::lua {
namespace {

constexpr int64_t most_samples = 100'000;  // whose classes are told apart: each is read into objects of its own

const char start_function = 0;  // its address is the registry key

/// The class of each sample, told by its first entry: that is the root cause.
std::vector<std::string> classes_of(const at::Tensor& flags, const CodeNames& codes) {
  std::vector<std::string> classes;
  for (const auto& entries : flags::unpack_all(flags, {.codes = codes}))
    classes.push_back(entries.empty() ? "ok" : entries.front().code_name);
  return classes;
}

}  // namespace

/// A rule in a loop takes a sample once, however many turns take it.
std::vector<Coverage::Note> Coverage::once_for_each_rule(std::vector<Note> notes) {
  std::vector<Note> result;
  for (Note& note : notes) {
    const auto same = std::find_if(result.begin(), result.end(), [&](const Note& other) {
      return other.rule == note.rule && other.mask.sizes() == note.mask.sizes();
    });
    if (same == result.end())
      result.push_back(std::move(note));
    else
      same->mask = same->mask.logical_or(note.mask);
  }
  return result;
}

Coverage::Coverage(std::string_view source, const std::string& path)
    : found_(rewriter::find_rules(source, "@" + path)),
      samples_(found_.rules.size()),
      ran_(found_.rules.size()),
      ran_outside_(found_.rules.size()) {}

int Coverage::note(lua_State* L) {
  auto& self = *static_cast<Coverage*>(lua_touserdata(L, lua_upvalueindex(1)));
  const auto rule = static_cast<size_t>(luaL_checkinteger(L, 1));
  (self.running_ ? self.ran_ : self.ran_outside_).at(rule) = true;
  if (self.running_) self.notes_.push_back({rule, check_tensor(L, 2).detach()});
  return 0;
}

void Coverage::install(ScriptState& state) {
  in_protected_call(state.lua(), [&](lua_State* L) {
    const PreludeFile& file = coverage_sources().front();
    if (luaL_loadbufferx(L, file.source.data(), file.source.size(), "=[triage coverage]", "t") != LUA_OK) lua_error(L);
    push_core(L);
    lua_pushlightuserdata(L, this);
    lua_pushcclosure(L, guarded<note>, 1);
    lua_call(L, 2, 4);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &start_function);
    state.define("_triage_arm");
    state.define("_triage_branch");
    state.define("_triage_cover");
  });
}

void Coverage::start(ScriptState& state) {
  notes_.clear();
  running_ = true;
  in_protected_call(state.lua(), [](lua_State* L) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &start_function);
    lua_call(L, 0, 0);
  });
}

void Coverage::finish(const at::Tensor& flags, const CodeNames& codes) {
  running_ = false;
  std::vector<std::string> classes;
  const bool told_apart = flags.defined() && flags.size(0) <= most_samples;
  if (told_apart) classes = classes_of(flags, codes);
  for (const Note& note : once_for_each_rule(std::move(notes_))) {
    const bool known = told_apart && (note.mask.dim() == 0 || note.mask.size(0) == flags.size(0));
    if (!known) {
      if (const auto count = note.mask.sum().item<int64_t>()) samples_[note.rule]["any"] += count;
      continue;
    }
    const at::Tensor mask = compat::readable_values(note.mask.expand({flags.size(0)}));
    const bool* taken = mask.data_ptr<bool>();
    for (size_t i = 0; i < classes.size(); ++i)
      if (taken[i]) ++samples_[note.rule][classes[i]];
  }
  notes_.clear();
}

std::vector<Coverage::RuleCoverage> Coverage::taken() const {
  std::vector<RuleCoverage> result;
  for (size_t i = 0; i < found_.rules.size(); ++i)
    if (ran_[i] || !ran_outside_[i]) result.push_back({found_.rules[i], samples_[i]});
  return result;
}

}  // namespace triage::lua
