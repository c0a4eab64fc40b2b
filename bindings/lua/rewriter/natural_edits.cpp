#include "bindings/lua/rewriter/natural_edits.h"

#include <algorithm>
#include <set>

#include "bindings/lua/rewriter/chain_fields.h"
#include "bindings/lua/rewriter/predicates.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/operand_names.h"

namespace triage::lua::rewriter {
namespace {

// With Lua's 200 locals, what an `if` passes on stays below Lua's 255 registers.
constexpr size_t kMaxSelected = 50;

/// What the chain of the innermost `if` holds.
std::string in_chain(chain::Field field) { return "__triage_k[" + std::to_string(field) + "]"; }

bool is_marked(std::string_view source) {
  constexpr std::string_view mark = "--!tensor";
  const size_t begin = source.find_first_not_of("\r\n");  // what a `#` line leaves
  if (begin == std::string_view::npos || source.compare(begin, mark.size(), mark) != 0) return false;
  const size_t end = begin + mark.size();
  return end == source.size() || std::string_view(" \t\r\n").find(source[end]) != std::string_view::npos;
}

bool is_natural_policy(const Expression& e, std::string_view source) {
  if (e.kind != ExpressionKind::Call || e.left->kind != ExpressionKind::Name) return false;
  if (e.left->variable || e.left->text != "policy" || e.items.size() != 1) return false;
  const Expression& table = *e.items[0];
  return table.kind == ExpressionKind::Table &&
         std::any_of(table.items.begin(), table.items.end(), [&](const Expression* item) {
           return item->kind == ExpressionKind::String && item->text == "tensor" && field_name(source, *item) == "lua";
         });
}

std::string joined_names(const std::vector<const Variable*>& variables) {
  std::string text;
  for (const Variable* const variable : variables) text += (text.empty() ? "" : ",") + variable->name;
  return text;
}

}  // namespace

bool is_natural(const Chunk& chunk, std::string_view source) {
  return is_marked(source.substr(chunk.start)) ||
         std::any_of(chunk.expressions.begin(), chunk.expressions.end(),
                     [&](const Expression& e) { return is_natural_policy(e, source); });
}

bool chooses_samples(const Statement& if_statement) {
  return std::any_of(if_statement.values.begin(), if_statement.values.end(),
                     [](const Expression* condition) { return can_be_a_natural_mask(*condition); });
}

std::string NaturalEdits::close_function() {
  const bool joins = functions_.back().joins;
  functions_.pop_back();
  return joins ? "local __triage_t={};" : "";
}

/// Variables from outside of the statement that something in it assigns, functions in it included.
std::vector<const Variable*> NaturalEdits::selected(const Statement& s) const {
  std::vector<const Variable*> variables;
  const auto first = std::lower_bound(chunk_.statements.begin(), chunk_.statements.end(), s.begin,
                                      [](const Statement& inner, size_t begin) { return inner.begin < begin; });
  std::set<const Variable*> known;
  for (auto inner = first; inner != chunk_.statements.end() && inner->begin < s.end; ++inner) {
    work_.step(1 + inner->targets.size());
    for (const Expression* const target : inner->targets) {
      const Variable* const variable = target->kind == ExpressionKind::Name ? target->variable : nullptr;
      const bool from_outside = variable && variable->declared < s.begin;
      if (from_outside && known.insert(variable).second) variables.push_back(variable);
    }
  }
  if (variables.size() > kMaxSelected)
    throw SyntaxError(file_ + ":" + std::to_string(s.line) + ": an `if` of natural Lua may assign at most " +
                          std::to_string(kMaxSelected) + " variables from outside of it, and this one assigns " +
                          std::to_string(variables.size()) + "; keep some of them in a table that each branch makes",
                      s.line, s.column);
  return variables;
}

/// An error ends the function, and with it its variables, but not those that other functions see.
std::string NaturalEdits::restoring_function(const std::vector<const Variable*>& variables) {
  std::string targets;
  bool any = false;
  for (const Variable* const variable : variables) {
    any |= variable->captured;
    targets += (targets.empty() ? "" : ",") + (variable->captured ? variable->name : "__triage_v");
  }
  return any ? "function(...)local __triage_v " + targets + "=... end" : "";
}

void NaturalEdits::open_if(const Statement& s) {
  const int label = labels_++;
  const std::string runs = in_chain(chain::arm);
  for (size_t i = 0; i < s.blocks.size(); i++) {
    const std::string arm = std::to_string(i + 1);
    const std::string asks = runs + "==" + arm + " or " + runs + "==0 and __triage_decide(__triage_k," + arm + ",";
    if (i == s.values.size()) {
      edits_.replace(s.else_begin, s.else_begin + std::string_view("else").size(), "elseif " + asks + "true) then ");
      continue;
    }
    edits_.before(s.values[i]->begin, asks);
    edits_.after(s.then_begins[i], ") ");
  }
  const std::vector<const Variable*> variables = selected(s);
  std::string arguments = string_literal(joined_names(variables)) + "," + std::to_string(s.line) + chain_argument();
  if (const std::string restoring = restoring_function(variables); !restoring.empty())
    arguments += (chain_argument().empty() ? ",nil," : ",") + restoring;
  edits_.before(s.begin, "do local __triage_k<close> =__triage_chain(" + arguments + ")::__triage_again_" +
                             std::to_string(label) + "::");
  functions_.back().chains++;
  open_labels_.push_back(label);
}

void NaturalEdits::close_if(const Statement& s) {
  const std::string names = joined_names(selected(s));
  const std::string next =
      names.empty() ? "__triage_next(__triage_k)" : names + "=__triage_next(__triage_k," + names + ")";
  edits_.after(s.end, " if " + in_chain(chain::masks) + " then " + next + " if " + in_chain(chain::arm) +
                          ">0 then goto __triage_again_" + std::to_string(open_labels_.back()) + " end end end");
  open_labels_.pop_back();
  functions_.back().chains--;
}

/// How many `if`s around the statement it leaves.
int NaturalEdits::chains_left(const Statement& s) const {
  const EnclosingFunction& function = functions_.back();
  if (s.kind == StatementKind::Return) return function.chains;
  if (s.kind == StatementKind::Break) return function.chains - (function.loops.empty() ? 0 : function.loops.back());
  const auto has_label = [&](const EnclosingBlock& open) {
    const auto& statements = open.block->statements;
    work_.step(statements.size());
    return std::any_of(statements.begin(), statements.end(), [&](const Statement* inner) {
      return inner->kind == StatementKind::Label && inner->label == s.label;
    });
  };
  const auto target = std::find_if(function.blocks.rbegin(), function.blocks.rend(), has_label);
  return target == function.blocks.rend() ? 0 : function.chains - target->chains;
}

void NaturalEdits::leave(const Statement& s) {
  const bool leaves =
      s.kind == StatementKind::Return || s.kind == StatementKind::Break || s.kind == StatementKind::Goto;
  const int chains = leaves ? chains_left(s) : 0;
  if (chains == 0) return;
  const char* const what = s.kind == StatementKind::Return  ? "return"
                           : s.kind == StatementKind::Break ? "break"
                                                            : "goto";
  edits_.before(s.begin, "__triage_leave(__triage_k," + std::to_string(chains) + ",\"" + what + "\"," +
                             position(s.line, s.line, s.column) + ");");
}

void NaturalEdits::loop_operand(const Expression& e, std::string_view loop) {
  if (!can_be_a_natural_mask(e) && !can_be_a_number(e)) return;
  edits_.before(e.begin, "__triage_loop(");
  edits_.after(e.end, ",\"" + std::string(loop) + "\"," + position(e.line, e.line, e.column) + ")");
}

void NaturalEdits::keep(const Expression& operand, size_t end, const std::string& slot, bool first, bool is_condition) {
  edits_.before(operand.begin, "__triage_keep(__triage_t," + slot + ",");
  const char* const more = first ? ",true" : is_condition ? ",false" : "";
  edits_.after(end, more + std::string(is_condition ? ",true)" : ")"));
}

void NaturalEdits::logical_chain(const Expression& whole, bool is_condition) {
  std::vector<const Expression*> nodes;  // from the right
  for (const Expression* e = &whole; is_logical(*e) && e->op == whole.op; e = e->left) nodes.push_back(e);
  bool needed = can_be_a_natural_mask(*nodes.back()->left);
  for (size_t i = 1; i < nodes.size(); i++) needed |= can_be_a_natural_mask(*nodes[i]->right);
  if (!needed) return;
  EnclosingFunction& function = functions_.back();
  function.joins = true;
  // The sign tells the operator.
  const std::string slot = (whole.op == Operator::And ? "" : "-") + std::to_string(++function.slot);
  keep(*nodes.back()->left, nodes.back()->op_begin, slot, true, is_condition);
  for (size_t i = nodes.size() - 1; i > 0; i--)
    keep(*nodes[i]->right, nodes[i - 1]->op_begin, slot, false, is_condition);
  edits_.before(whole.begin, "__triage_join(__triage_t," + slot + ",");
  edits_.after(whole.end, is_condition ? ",true)" : ")");
}

void NaturalEdits::negation(const Expression& e) {
  if (!can_be_a_natural_mask(*e.left)) return;
  edits_.replace(e.op_begin, e.op_end, " __triage_not(");
  edits_.after(e.end, ")");
}

}  // namespace triage::lua::rewriter
