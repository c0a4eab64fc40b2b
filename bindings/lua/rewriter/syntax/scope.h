#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bindings/lua/rewriter/syntax/syntax_tree.h"
#include "bindings/lua/rewriter/syntax/work.h"

/// Names while a chunk is parsed: which variable a name means, which labels a `goto` sees. Follows Lua's own compiler,
/// so that the same programs are refused with the same words.
namespace triage::lua::rewriter {

class Scopes {
 public:
  /// `fail` throws the SyntaxError; `message` is complete but for the position.
  using Fail = std::function<void(const std::string& message)>;
  Scopes(Fail fail, Work& work) : fail_(std::move(fail)), work_(work) {}

  void open_function(Function* function);
  void close_function();
  void open_block(bool is_loop);
  void close_block();

  Function* function() const { return functions_.back().function; }
  /// Makes the variable visible.
  void declare(Variable* variable);
  /// Visible variables of the current function, those of open declarations not counted.
  int local_count() const {
    return static_cast<int>(active_.size() - functions_.back().first_variable) + functions_.back().hidden;
  }
  /// Control values of `for` loops, which use up locals without a name.
  void add_hidden(int count);

  /// Fills in what `name` means: its variable, or none for a global; marks variables that inner functions use.
  void resolve(Expression& name) const;

  void add_goto(const std::string& label, int line);
  void add_label(const std::string& label, int line, bool last_in_block);
  /// Of the current function: labels, `goto`s and `break`s so far.
  size_t jump_count() const { return functions_.back().jumps; }

 private:
  struct OpenFunction {
    Function* function;
    size_t first_variable, first_block, first_label, first_goto;
    int hidden = 0;
    size_t jumps = 0;
  };
  struct OpenBlock {
    size_t first_variable, first_label, first_goto;
    bool is_loop;
    int hidden;
  };
  struct Label {
    std::string name;
    int line;
    size_t variables;
  };
  struct Goto {
    std::string name;
    int line;
    size_t variables;
  };

  void hide_from(size_t first_variable);
  const Label* find_label(std::string_view name) const;
  void resolve_gotos(const Label& label);
  void refuse_jump(const Goto& jump) const;

  Fail fail_;
  Work& work_;
  std::vector<OpenFunction> functions_;
  std::vector<OpenBlock> blocks_;
  std::vector<Variable*> active_;
  std::unordered_map<std::string_view, std::vector<size_t>> visible_;  // of each name its places in active_
  std::vector<Label> labels_;
  std::vector<Goto> gotos_;
};

}  // namespace triage::lua::rewriter
