#include "bindings/lua/rewriter/scope.h"

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
  active_.resize(block.first_variable);
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

int Scopes::hidden() const {
  int count = 0;
  for (size_t i = functions_.back().first_block; i < blocks_.size(); i++) count += blocks_[i].hidden;
  return count;
}

void Scopes::resolve(Expression& name) const {
  size_t level = functions_.size() - 1;
  for (size_t i = active_.size(); i-- > 0;) {
    while (i < functions_[level].first_variable) level--;
    if (active_[i]->name != name.text) continue;
    name.variable = active_[i];
    name.levels_out = static_cast<int>(functions_.size() - 1 - level);
    if (name.levels_out > 0) name.variable->captured = true;
    return;
  }
}

const Scopes::Label* Scopes::find_label(std::string_view name) const {
  for (size_t i = functions_.back().first_label; i < labels_.size(); i++)
    if (labels_[i].name == name) return &labels_[i];
  return nullptr;
}

void Scopes::add_goto(const std::string& label, int line) {
  if (label == "break" || !find_label(label)) gotos_.push_back({label, line, active_.size()});
}

void Scopes::add_label(const std::string& label, int line, bool last_in_block) {
  if (const Label* earlier = find_label(label))
    fail_("label '" + label + "' already defined on line " + std::to_string(earlier->line));
  labels_.push_back({label, line, last_in_block ? blocks_.back().first_variable : active_.size()});
  resolve_gotos(Label(labels_.back()));
}

void Scopes::resolve_gotos(const Label& label) {
  for (size_t i = blocks_.back().first_goto; i < gotos_.size();) {
    if (gotos_[i].name != label.name) {
      i++;
      continue;
    }
    if (gotos_[i].variables < label.variables)
      fail_("<goto " + gotos_[i].name + "> at line " + std::to_string(gotos_[i].line) +
            " jumps into the scope of local '" + active_[gotos_[i].variables]->name + "'");
    gotos_.erase(gotos_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Scopes::refuse_jump(const Goto& jump) const {
  if (jump.name == "break") fail_("break outside loop at line " + std::to_string(jump.line));
  fail_("no visible label '" + jump.name + "' for <goto> at line " + std::to_string(jump.line));
}

}  // namespace triage::lua::rewriter
