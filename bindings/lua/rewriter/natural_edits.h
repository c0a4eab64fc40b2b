#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/lua/rewriter/edits.h"
#include "bindings/lua/rewriter/syntax/syntax_tree.h"
#include "bindings/lua/rewriter/syntax/work.h"

/// Natural Lua: chunks in which `if`, `and`, `or` and `not` take masks. A branch stays where it is in the text, so that
/// on Lua values everything (return, break, goto, `...`) is plain Lua. Where a condition turns out a mask, the `if`
/// runs once for each branch:
///
///     do local __triage_k<close> =__triage_chain("z",1) ::__triage_again_0::
///     if __triage_k[1]==1 or __triage_k[1]==0 and __triage_decide(__triage_k,1,m,4) then z = a end
///     if __triage_k[2] then z=__triage_next(__triage_k,z) if __triage_k[1]>0 then goto __triage_again_0 end end end
///
/// What the chain holds at [1] and [2] is in chain_fields.h. `__triage_next` keeps what a branch
/// has left in its variables, puts back what they were, and at the end gives the selection. Where functions share some
/// of the variables, `__triage_chain` takes a function that puts them back when an error ends the `if`.
namespace triage::lua::rewriter {

/// Does the chunk say so: by `--!tensor` on its first line, or by a call `policy {... lua = "tensor" ...}`?
bool is_natural(const Chunk& chunk, std::string_view source);

/// Is there a condition that can be a mask?
bool chooses_samples(const Statement& if_statement);

/// The edits of natural Lua, and what they need to know of where the walk through the chunk is.
class NaturalEdits {
 public:
  /// `file`: as messages show the chunk's name.
  NaturalEdits(const Chunk& chunk, std::string file, Edits& edits, Work& work)
      : chunk_(chunk), file_(std::move(file)), edits_(edits), work_(work) {}

  void open_function() { functions_.emplace_back(); }
  /// Goes to the start of the function: what its `and` and `or` need; mostly empty.
  std::string close_function();
  void open_block(const Block& block) { functions_.back().blocks.push_back({&block, functions_.back().chains}); }
  void close_block() { functions_.back().blocks.pop_back(); }
  void open_loop() { functions_.back().loops.push_back(functions_.back().chains); }
  void close_loop() { functions_.back().loops.pop_back(); }

  /// Around the blocks of an `if` whose conditions have been edited.
  void open_if(const Statement& s);
  void close_if(const Statement& s);
  /// `return`, `break` and `goto`, which may not leave a branch that runs for every sample.
  void leave(const Statement& s);
  /// The operand of a loop, which must be no mask.
  void loop_operand(const Expression& e, std::string_view loop);

  /// A whole chain of one operator, `a and b and c`, whose operands have been edited, as a condition or a value;
  /// likewise `not a`.
  void logical_chain(const Expression& whole, bool is_condition);
  void negation(const Expression& e);

  /// What a write to an upvalue is told: ",__triage_k" inside of branches.
  std::string chain_argument() const { return functions_.back().chains ? ",__triage_k" : ""; }

 private:
  struct EnclosingBlock {
    const Block* block;
    int chains;
  };
  struct EnclosingFunction {
    int chains = 0;  // `if`s around the place
    std::vector<EnclosingBlock> blocks;
    std::vector<int> loops;  // `if`s around each
    int slot = 0;            // of the current chain of `and` or `or`
    bool joins = false;
  };

  std::vector<const Variable*> selected(const Statement& s) const;
  static std::string restoring_function(const std::vector<const Variable*>& variables);
  int chains_left(const Statement& s) const;
  void keep(const Expression& operand, size_t end, const std::string& slot, bool first, bool is_condition);

  const Chunk& chunk_;
  std::string file_;
  Edits& edits_;
  Work& work_;
  std::vector<EnclosingFunction> functions_;
  int labels_ = 0;
  std::vector<int> open_labels_;
};

}  // namespace triage::lua::rewriter
