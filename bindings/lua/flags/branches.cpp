#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/rewriter/chain_fields.h"
#include "bindings/lua/semantics/intrinsics.h"
#include "bindings/lua/semantics/tensor_semantics.h"
#include "bindings/lua/state/modes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/unwinding.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/compat/autocast.h"
#include "runtime/flags/branches/branch_checks.h"

#include <c10/core/GradMode.h>
#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What IF asks of tensors. Shapes are compared here without telling the recorder: `triage::select` checks them again
/// at run time, so that they need not become guards.
namespace triage::lua {
namespace {

using capture::Recorder;
namespace check = flags::check;

const check::Language in_lua = {
    describe, "mask:flatten(1):any(1)", ":to(z.dtype)", "x:sum(-1, true)", ":unsqueeze(0)", ".where", "values", ""};

int capturing(lua_State* L) {
  lua_pushboolean(L, Recorder::current() != nullptr);
  return 1;
}

/// core.condition_rank(condition, operation) -> 0 (of the batch), 1 (of samples), or more (over elements)
int condition_rank(lua_State* L) {
  const std::string who = luaL_checkstring(L, 2);
  replace_by_data(L, 1);
  const at::Tensor* condition = test_tensor(L, 1);
  if (!condition) {
    const char* hint = lua_isboolean(L, 1) ? "; use a plain `if` for a plain boolean" : "";
    throw InputError(who + ": " + check::condition_expected + describe(L, 1) + hint);
  }
  check::hold(who, check::condition(*condition, in_lua), in_lua);
  lua_pushinteger(L, condition->dim());
  return 1;
}

/// core.batch_condition(condition, operation) -> condition
int batch_condition(lua_State* L) {
  condition_rank(L);
  check::hold(lua_tostring(L, 2), check::batch_condition(check_tensor(L, 1), in_lua), in_lua);
  lua_settop(L, 1);
  return 1;
}

/// core.holds(condition): the value of a condition of shape (); eager code only.
int holds(lua_State* L) {
  const at::Tensor& condition = check_tensor(L, 1);
  capture::end_segment();  // its value is needed now
  lua_pushboolean(L, condition.item().toBool());
  return 1;
}

/// core.select_mismatch(condition, a, b) -> what keeps the two from being selected between, or nil
int select_mismatch(lua_State* L) {
  const std::string complaint = check::selectable(check_tensor(L, 1), check_tensor(L, 2), check_tensor(L, 3), in_lua);
  if (complaint.empty())
    lua_pushnil(L);
  else
    lua_pushlstring(L, complaint.data(), complaint.size());
  return 1;
}

bool is_flags(const at::Tensor& tensor) {
  const Recorder* recorder = Recorder::current();
  const capture::FlagsTracker* tracker = capture::FlagsTracker::current();
  return (recorder && recorder->tensors().is_flags(tensor)) || (tracker && tracker->is_flags(tensor));
}

/// core.element_mismatch(condition, a, b): the same for a condition over elements, where a branch may give a number.
int element_mismatch(lua_State* L) {
  const at::Tensor& condition = check_tensor(L, 1);
  at::Tensor branches[2];
  std::string complaint;
  for (const int i : {0, 1}) {
    if (const at::Tensor* tensor = test_tensor(L, i + 2)) branches[i] = *tensor;
    if (condition.dim() > 0 && branches[i].defined() && is_flags(branches[i]))
      complaint = check::flags_by_element(condition, branches[i], in_lua);
  }
  if (complaint.empty()) complaint = check::selectable_elements(condition, branches[0], branches[1], in_lua);
  if (complaint.empty())
    lua_pushnil(L);
  else
    lua_pushlstring(L, complaint.data(), complaint.size());
  return 1;
}

/// core.masks_rows(condition over elements, value, other) -> whether what is captured has a gradient for each row of
/// `value`, and the condition elements of these rows; and none for the value beside it. A graph then holds where that
/// is so.
int masks_rows(lua_State* L) {
  const at::Tensor& condition = check_tensor(L, 1);
  const at::Tensor *value = test_tensor(L, 2), *other = test_tensor(L, 3);
  Recorder* recorder = Recorder::current();
  const bool masks = recorder && value && condition.dim() > 1 && value->dim() == condition.dim() &&
                     value->size(0) == condition.size(0) && condition.numel() > condition.size(0) &&
                     c10::GradMode::is_enabled() && recorder->may_require_grad(*value) &&
                     !(other && recorder->may_require_grad(*other));
  if (masks) recorder->sizes().rely_on({{condition, 0, *value, 0}});
  lua_pushboolean(L, masks);
  return 1;
}

/// core.branches_differ(construct or nil, branch, other, leaf, what, rule or nil): raises the error for that.
int branches_differ(lua_State* L) {
  throw InputError(check::branches_differ(luaL_optstring(L, 1, "IF"), luaL_checkstring(L, 2), luaL_checkstring(L, 3),
                                          luaL_checkstring(L, 4), luaL_checkstring(L, 5),
                                          luaL_optstring(L, 6, check::same_results)));
}

/// core.numbers_differ(construct, branch, number, other, number): raises the error of branches that return different
/// numbers of values.
int numbers_differ(lua_State* L) {
  const auto number = [&](int index) { return static_cast<size_t>(luaL_checkinteger(L, index)); };
  throw InputError(check::numbers_differ(luaL_checkstring(L, 1), luaL_checkstring(L, 2), number(3),
                                         luaL_checkstring(L, 4), number(5), in_lua));
}

/// core.fits(operation, z, made) -> whether what a function made of `z` has its shape; false where it has to be
/// broadcast.
int fits(lua_State* L) {
  const at::Tensor &z = check_tensor(L, 2), &made = check_tensor(L, 3);
  check::hold(luaL_checkstring(L, 1), check::fitting(z, made, in_lua), in_lua);
  lua_pushboolean(L, made.sizes() == z.sizes());
  return 1;
}

/// The recorder knows that a branch is running as long as this lives.
class BranchScope {
 public:
  BranchScope(const at::Tensor& own, const std::vector<at::Tensor>& before) : recorder_(Recorder::current()) {
    if (!recorder_) return;
    const auto of_batch = [](const at::Tensor& condition) { return condition.defined() && condition.dim() == 0; };
    recorder_->enter_branch(of_batch(own) || std::any_of(before.begin(), before.end(), of_batch));
  }
  ~BranchScope() {
    if (recorder_ && recorder_ == Recorder::current())
      recorder_->leave_branch();  // a graph break may have ended the capture
  }
  BranchScope(const BranchScope&) = delete;
  BranchScope& operator=(const BranchScope&) = delete;

 private:
  Recorder* recorder_;
};

at::Tensor optional_condition(lua_State* L, int index) {
  return lua_isnoneornil(L, index) ? at::Tensor() : check_tensor(L, index);
}

std::vector<at::Tensor> conditions_before(lua_State* L, int list) {
  luaL_checktype(L, list, LUA_TTABLE);
  std::vector<at::Tensor> before;
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, list)); ++i) {
    lua_rawgeti(L, list, i);
    before.push_back(check_tensor(L, -1));
    lua_pop(L, 1);
  }
  return before;
}

/// Whether the whole batch, as it is in the call that is recorded, goes another way.
bool is_untaken(const at::Tensor& own, const std::vector<at::Tensor>& before) {
  const auto decides = [](const at::Tensor& condition, bool truth) {
    return condition.defined() && condition.dim() == 0 && condition.item().toBool() == truth;
  };
  for (const at::Tensor& condition : before)
    if (decides(condition, true)) return true;
  return decides(own, false);
}

/// Errors that the host gets with their type, whatever branch they come from.
bool is_for_host(lua_State* L, int index) {
  try {
    rethrow(L, index);
  } catch (const GraphBreakError&) {
    return true;
  } catch (const LimitError&) {
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

/// Scripts do not run the branch, so they do not know its error.
void break_for_error(lua_State* L, int index) {
  capture::graph_break(
      capture::Break::untaken_branch, "a branch that this batch does not take raises an error: " + error_text(L, index),
      "Make the branch work for every batch. Or write a plain `if`: the script then runs only the branch it takes.");
}

/// core.in_branch(fn, condition or nil, conditions of the branches before) -> what fn returns; nothing where it was
/// left
int in_branch(lua_State* L) {
  const at::Tensor own = optional_condition(L, 2);
  const std::vector<at::Tensor> before = conditions_before(L, 3);
  const bool may_be_left = Recorder::current() && is_untaken(own, before) && !capture::UntakenBranch::active();
  const capture::BranchGuard guard(before, own);
  const BranchScope branch(own, before);
  lua_settop(L, 1);
  if (!may_be_left) {
    call_for_all(L, 0);
    return lua_gettop(L);
  }
  // The script does not run it: what it leaves behind is not for the script.
  const KeepModes modes;
  const capture::OnGraphBreak restore_breaks(capture::OnGraphBreak::current());
  int status = LUA_OK;
  {
    const capture::UntakenBranch untaken(capture::UntakenBranch::Unwinds::branch, stack_depth(L));
    const CaughtErrors caught(L);
    status = lua_pcall(L, 0, LUA_MULTRET, 0);
    if (status != LUA_OK) caught.note();
    if (capture::UntakenBranch::left()) return 0;
  }
  if (status == LUA_OK) return lua_gettop(L);
  if (status == LUA_ERRMEM || is_for_host(L, -1)) return lua_error(L);
  break_for_error(L, -1);
  return 0;
}

/// core.mask_rank(value) -> how many dims, nil for what is no mask. It decides nothing that a graph would depend on.
int mask_rank(lua_State* L) {
  if (!is_mask(L, 1)) return 0;
  replace_by_data(L, 1);
  const at::Tensor* tensor = test_tensor(L, 1);
  lua_pushinteger(L, tensor->dim());
  return 1;
}

/// A branch of natural Lua, from where it begins to where it ends.
struct NaturalBranch {
  NaturalBranch(const std::vector<at::Tensor>& before, const at::Tensor& own, const void* thread, bool is_taken)
      : guard(before, own, thread), branch(own, before) {
    if (!is_taken) untaken.emplace(capture::UntakenBranch::Unwinds::call);
  }
  capture::BranchGuard guard;
  BranchScope branch;
  std::optional<capture::UntakenBranch> untaken;
  bool grad_mode = c10::GradMode::is_enabled();
  uint64_t autocast_state = compat::autocast_state();
  compat::Autocast autocast_cpu = compat::autocast(c10::kCPU), autocast_cuda = compat::autocast(c10::kCUDA);
  ErrorConfig config = get_config();
};
using BranchBox = std::unique_ptr<NaturalBranch>;
const char branch_mark = 0;  // its address: registry key of the metatable

/// core.before_branch(condition or nil, conditions of the branches before): a branch that the batch does not take is
/// for a graph only. If the call could not restart where the branch does what no graph can hold, the graph ends in
/// front of it.
int before_branch(lua_State* L) {
  const at::Tensor own = optional_condition(L, 1);
  if (!Recorder::current() || capture::UntakenBranch::active() || capture::OutsideBranches::may_restart()) return 0;
  if (Recorder::current()->is_strict() || capture::OnGraphBreak::raises()) return 0;  // there every break is an error
  if (is_untaken(own, conditions_before(L, 2)))
    capture::graph_break(capture::Break::untaken_branch,
                         "an `if` on a condition of shape () follows random numbers or an allowed side effect, which "
                         "capture cannot undo",
                         "Draw after the `if`; or write it as IF(cond, function() ... end).");
  return 0;
}

/// core.enter_branch(condition or nil, conditions of the branches before) -> what leave_branch takes
int enter_branch(lua_State* L) {
  const at::Tensor own = optional_condition(L, 1);
  const std::vector<at::Tensor> before = conditions_before(L, 2);
  const bool is_taken = !Recorder::current() || !is_untaken(own, before);
  BranchBox& box = push_userdata<BranchBox>(L, nullptr, &branch_mark);
  box = std::make_unique<NaturalBranch>(before, own, L, is_taken);
  return 1;
}

/// core.leave_branch(what enter_branch gave, whether an error ended the branch, the error)
int leave_branch(lua_State* L) {
  lua_settop(L, 3);
  BranchBox* const box = test_userdata<BranchBox>(L, 1, &branch_mark);
  if (!box || !*box) return 0;
  const BranchBox branch = std::move(*box);  // it ends with this function
  const bool mode_changed = c10::GradMode::is_enabled() != branch->grad_mode;
  const bool autocast_changed = compat::autocast_state() != branch->autocast_state;
  if (autocast_changed) {
    compat::set_autocast(c10::kCPU, branch->autocast_cpu);
    compat::set_autocast(c10::kCUDA, branch->autocast_cuda);
  }
  c10::GradMode::set_enabled(branch->grad_mode);
  const bool failed = lua_toboolean(L, 2) && !capture::UntakenBranch::left();
  if (failed && branch->untaken && Recorder::current() && !is_for_host(L, 3)) break_for_error(L, 3);
  if (!(get_config() == branch->config)) {
    set_config(branch->config);
    throw PolicyError(
        "the configuration was changed beyond the end of a branch of an `if` whose condition is a mask: that branch "
        "runs for every sample. Limit the change to the branch, with `local _ <close> = set_config(c)`; or change it "
        "before or after the `if`.");
  }
  if (!mode_changed && !autocast_changed) return 0;
  throw PolicyError(std::string(mode_changed ? "the gradient mode was changed" : "autocast was changed") +
                    " beyond the end of a branch of an `if` whose condition is a mask: that branch runs for every "
                    "sample. Limit the change to the branch, with `local _ <close> = torch." +
                    (mode_changed ? "no_grad()` or torch.no_grad(fn)." : "autocast(...)`."));
}

/// core.may_break() -> whether something is captured that a graph break would not fail
int may_break(lua_State* L) {
  const Recorder* recorder = Recorder::current();
  lua_pushboolean(L, recorder && !recorder->is_strict() && !capture::OnGraphBreak::raises());
  return 1;
}

/// core.attempt(fn, argument) -> true, what fn returns; or false, the error. No script handles errors there, as in
/// pcall.
int attempt(lua_State* L) {
  lua_settop(L, 2);
  const bool fine = lua_pcall(L, 1, 1, 0) == LUA_OK;
  lua_pushboolean(L, fine);
  lua_insert(L, 1);
  return 2;
}

/// core.break_for_difference(error): that branches differ.
int break_for_difference(lua_State* L) {
  lua_settop(L, 1);
  if (is_for_host(L, 1)) return lua_error(L);
  capture::graph_break(capture::Break::untaken_branch, "the branches of a condition differ: " + error_text(L, 1),
                       "Give all branches the same structure, shapes and dtypes. Or write a plain `if`: the script "
                       "then runs only the branch it takes.");
  return 0;
}

/// core.for_rows(mask, fn, ...) -> what fn(...) returns; only the rows of the mask count.
int for_rows(lua_State* L) {
  const capture::BranchGuard guard({}, check_tensor(L, 1));
  call_for_all(L, lua_gettop(L) - 2);
  return lua_gettop(L) - 1;
}

/// core.mark_created(table) -> table: scripts may write to it while they are captured.
int mark_table_created(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  mark_created(L, 1);
  return 1;
}

}  // namespace

void add_control_flow(lua_State* L) {
  static const luaL_Reg branch_functions[] = {{"__gc", guarded<free_userdata<BranchBox, branch_mark>>},
                                              {nullptr, nullptr}};
  make_metatable(L, &branch_mark, "branch", branch_functions);
  static const luaL_Reg functions[] = {{"capturing", guarded<capturing>},
                                       {"condition_rank", guarded<condition_rank>},
                                       {"batch_condition", guarded<batch_condition>},
                                       {"holds", guarded<holds>},
                                       {"select_mismatch", guarded<select_mismatch>},
                                       {"element_mismatch", guarded<element_mismatch>},
                                       {"masks_rows", guarded<masks_rows>},
                                       {"branches_differ", guarded<branches_differ>},
                                       {"numbers_differ", guarded<numbers_differ>},
                                       {"fits", guarded<fits>},
                                       {"in_branch", guarded<in_branch>},
                                       {"mask_rank", guarded<mask_rank>},
                                       {"before_branch", guarded<before_branch>},
                                       {"enter_branch", guarded<enter_branch>},
                                       {"leave_branch", guarded<leave_branch>},
                                       {"may_break", guarded<may_break>},
                                       {"attempt", guarded<attempt>},
                                       {"break_for_difference", guarded<break_for_difference>},
                                       {"for_rows", guarded<for_rows>},
                                       {"mark_created", guarded<mark_table_created>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
  lua_newtable(L);  // for scripts/prelude/natural.lua
  for (const auto& [name, place] : rewriter::chain::fields) {
    lua_pushinteger(L, place);
    lua_setfield(L, -2, name);
  }
  lua_setfield(L, -2, "chain_fields");
}

}  // namespace triage::lua
