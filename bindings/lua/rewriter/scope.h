#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/lua/rewriter/syntax_tree.h"

/// Names while a chunk is parsed: which variable a name means, which labels a `goto` sees. Follows Lua's own compiler,
/// so that the same programs are refused with the same words.
namespace triage::lua::rewriter {

class Scopes {
 public:
  /// `fail` throws the SyntaxError; `message` is complete but for the position.
  using Fail = std::function<void(const std::string& message)>;
  explicit Scopes(Fail fail) : fail_(std::move(fail)) {}

  void open_function(Function* function);
  void close_function();
  void open_block(bool is_loop);
  void close_block();

  Function* function() const { return functions_.back().function; }
  /// Makes the variable visible.
  void declare(Variable* variable) { active_.push_back(variable); }
  /// Visible variables of the current function, those of open declarations not counted.
  int local_count() const { return static_cast<int>(active_.size() - functions_.back().first_variable) + hidden(); }
  /// Control values of `for` loops, which use up locals without a name.
  void add_hidden(int count) { blocks_.back().hidden += count; }

  /// Fills in what `name` means: its variable, or none for a global; marks variables that inner functions use.
  void resolve(Expression& name) const;

  void add_goto(const std::string& label, int line);
  void add_label(const std::string& label, int line, bool last_in_block);

 private:
  struct OpenFunction {
    Function* function;
    size_t first_variable, first_block, first_label, first_goto;
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

  int hidden() const;
  const Label* find_label(std::string_view name) const;
  void resolve_gotos(const Label& label);
  void refuse_jump(const Goto& jump) const;

  Fail fail_;
  std::vector<OpenFunction> functions_;
  std::vector<OpenBlock> blocks_;
  std::vector<Variable*> active_;
  std::vector<Label> labels_;
  std::vector<Goto> gotos_;
};

}  // namespace triage::lua::rewriter
