#pragma once
#include <triage/graph.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/operators/semantics.h"
#include "runtime/symbols/range.h"

/// What is known of the numbers in a graph that have no value before it runs: which symbol they are (`u0` was read from
/// a tensor, `s0` is a size), which expression of symbols, and in which range they lie by the assertions before.
namespace triage::symbols {

/// No dimension is larger: memory ends long before.
inline constexpr Number kLargestSize = 4611686018427387904.0L;

struct Symbol {
  std::string name;
  bool whole = true;  // an integer
  Range range;
  const graph::Value* value = nullptr;  // the result of `triage::item`; null for a size
  bool hidden = false;                  // stands for an expression of which only the range is known
};

/// A number or truth value. As scale * symbol + offset where it is that; then ranges of the symbol tell of it.
struct SymbolicExpression {
  enum class Kind : uint8_t { number, truth };
  Kind kind = Kind::number;
  bool whole = true;
  std::string text;     // "u0", "2*u0 + 1", "u0 <= 5"; of a very long one the beginning
  bool is_sum = false;  // `text` wants parentheses inside a product
  size_t symbol = 0;    // into SymbolTable::symbols()
  Number scale = 0, offset = 0;

  // Of a truth value: what is compared.
  Relation relation = Relation::equal;
  std::vector<SymbolicExpression> sides;  // two
};

/// Fed with the nodes of a graph one after the other.
class SymbolTable {
 public:
  /// `size_of`: a name for the size of a dimension of a value; a name that is a number is that constant. Equal names
  /// are one symbol.
  using SizeName = std::function<std::string(const graph::Value*, int64_t)>;
  explicit SymbolTable(SizeName size_of = {});

  /// The size symbol `name` with what is known of it.
  void add_size(const std::string& name, const Range& range);
  void visit(const graph::Node& node);
  /// Null where the value is no number or truth value made of symbols.
  const SymbolicExpression* find(const graph::Value* value) const;
  /// The truth of a condition as far as ranges tell it.
  std::optional<bool> decide(const graph::Value* condition) const;
  /// From here on the condition holds, or its contrary.
  void assume(const graph::Value* condition, bool truth = true);
  const std::vector<Symbol>& symbols() const { return symbols_; }
  Range range(const SymbolicExpression& expression) const;

 private:
  std::optional<SymbolicExpression> read(const graph::Operand& operand) const;
  size_t symbol(const std::string& name, bool whole, const Range& range, const graph::Value* value);
  SymbolicExpression of_symbol(size_t index) const;
  SymbolicExpression opaque(std::string text, bool whole, bool is_sum, const Range& range);
  SymbolicExpression arithmetic(operators::Arithmetic op, const SymbolicExpression& a, const SymbolicExpression& b);
  std::optional<SymbolicExpression> linear(operators::Arithmetic op, const SymbolicExpression& a,
                                           const SymbolicExpression& b) const;
  void add_item(const graph::Node& node);
  void add_size_of(const graph::Node& node);
  void add_math(const graph::Node& node, const SymbolicExpression& a);
  void refine(const SymbolicExpression& side, Relation relation, const SymbolicExpression& other);

  SizeName size_of_;
  std::vector<Symbol> symbols_;
  std::unordered_map<std::string, size_t> by_name_;  // those that are not hidden
  size_t items_ = 0;
  std::unordered_map<const graph::Value*, SymbolicExpression> expressions_;
};

}  // namespace triage::symbols
