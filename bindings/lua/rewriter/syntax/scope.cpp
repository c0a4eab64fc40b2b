#include "bindings/lua/rewriter/syntax/scope.h"

#include <algorithm>

namespace triage::lua::rewriter {

void Scopes::open_function(Function* function) {
  functions_.push_back({function, active_.size(), blocks_.size(), labels_.size(), gotos_.size()});
  open_block(false);
}

void Scopes::close_function() {
  close_block();
  functions_.pop_back();
}

void Scopes::open_block(bool is_loop) {
  blocks_.push_back({active_.size(), labels_.size(), gotos_.size(), is_loop, 0});
}

void Scopes::close_block() {
  const OpenBlock block = blocks_.back();
  hide_from(block.first_variable);
  functions_.back().hidden -= block.hidden;
  if (block.is_loop) resolve_gotos({"break", 0, active_.size()});
  labels_.resize(block.first_label);
  const bool outermost = blocks_.size() == functions_.back().first_block + 1;
  if (outermost && gotos_.size() > block.first_goto) refuse_jump(gotos_[block.first_goto]);
  // What is still pending leaves the block: from here on it may jump to labels that see no more than the outer
  // variables.
  for (size_t i = block.first_goto; i < gotos_.size(); i++)
    gotos_[i].variables = std::min(gotos_[i].variables, block.first_variable);
  blocks_.pop_back();
}

void Scopes::declare(Variable* variable) {
  visible_[variable->name].push_back(active_.size());
  active_.push_back(variable);
}

void Scopes::hide_from(size_t first_variable) {
  for (; active_.size() > first_variable; active_.pop_back()) visible_[active_.back()->name].pop_back();
}

void Scopes::add_hidden(int count) {
  blocks_.back().hidden += count;
  functions_.back().hidden += count;
}

void Scopes::resolve(Expression& name) const {
  const auto found = visible_.find(name.text);
  if (found == visible_.end() || found->second.empty()) return;
  const size_t place = found->second.back();
  size_t level = functions_.size() - 1;
  for (; place < functions_[level].first_variable; level--) work_.step();
  name.variable = active_[place];
  name.levels_out = static_cast<int>(functions_.size() - 1 - level);
  if (name.levels_out > 0) name.variable->captured = true;
}

const Scopes::Label* Scopes::find_label(std::string_view name) const {
  work_.step(labels_.size() - functions_.back().first_label);
  for (size_t i = functions_.back().first_label; i < labels_.size(); i++)
    if (labels_[i].name == name) return &labels_[i];
  return nullptr;
}

void Scopes::add_goto(const std::string& label, int line) {
  functions_.back().jumps++;
  if (label == "break" || !find_label(label)) gotos_.push_back({label, line, active_.size()});
}

void Scopes::add_label(const std::string& label, int line, bool last_in_block) {
  functions_.back().jumps++;
  if (const Label* earlier = find_label(label))
    fail_("label '" + label + "' already defined on line " + std::to_string(earlier->line));
  labels_.push_back({label, line, last_in_block ? blocks_.back().first_variable : active_.size()});
  resolve_gotos(Label(labels_.back()));
}

void Scopes::resolve_gotos(const Label& label) {
  const auto first = gotos_.begin() + static_cast<std::ptrdiff_t>(blocks_.back().first_goto);
  work_.step(static_cast<size_t>(gotos_.end() - first));
  const auto resolved = std::remove_if(first, gotos_.end(), [&](const Goto& jump) {
    if (jump.name != label.name) return false;
    if (jump.variables < label.variables)
      fail_("<goto " + jump.name + "> at line " + std::to_string(jump.line) + " jumps into the scope of local '" +
            active_[jump.variables]->name + "'");
    return true;
  });
  gotos_.erase(resolved, gotos_.end());
}

void Scopes::refuse_jump(const Goto& jump) const {
  if (jump.name == "break") fail_("break outside loop at line " + std::to_string(jump.line));
  fail_("no visible label '" + jump.name + "' for <goto> at line " + std::to_string(jump.line));
}

}  // namespace triage::lua::rewriter
