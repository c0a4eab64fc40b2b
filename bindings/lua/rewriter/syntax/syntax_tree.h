#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

/// The syntax tree of a Lua 5.4 chunk. Nodes keep their byte range in the source, for the rewriter edits the text
/// instead of printing the tree. All nodes belong to the Chunk.
///
/// Depth: constructs that nest (parentheses, blocks, right operands) are limited by the parser as by Lua's; chains that
/// lean to the left (`a + b + c ...`, `a.b.c ...`) are not, so whoever walks `left` links does it in a loop.
namespace triage::lua::rewriter {

struct Block;
struct Expression;
struct Function;

/// A local variable or parameter.
struct Variable {
  std::string name;
  enum class Attribute : uint8_t { Regular, Const, Close } attribute = Attribute::Regular;
  size_t attribute_begin = 0;  // byte of the attribute's name, where there is one
  Function* owner = nullptr;
  size_t declared = 0;                 // byte behind its name, or a little further: within the declaration
  bool captured = false;               // an inner function uses it
  bool compile_time_constant = false;  // `<const>` with a literal: Lua keeps no variable for it
  Expression* initial = nullptr;       // of `local x = value`, where one value stands for it
};

enum class Operator : uint8_t {
  Add,
  Subtract,
  Multiply,
  Modulo,
  Power,
  Divide,
  FloorDivide,
  BitAnd,
  BitOr,
  BitXor,
  ShiftLeft,
  ShiftRight,
  Concat,
  Equal,
  Less,
  LessEqual,
  NotEqual,
  Greater,
  GreaterEqual,
  And,
  Or,
  None,
  Negate,
  BitNot,
  Not,
  Length,  // unary
};

enum class ExpressionKind : uint8_t {
  Nil,
  True,
  False,
  Number,
  Integer,
  String,
  Varargs,
  Function,
  Name,
  Index,  // from here on they may call something
  Call,
  MethodCall,
  Binary,
  Unary,
  Table,
  Parenthesized,
};

struct Expression {
  ExpressionKind kind = ExpressionKind::Nil;
  Operator op = Operator::None;  // Binary, Unary
  int line = 0, column = 0;      // of the first token
  int end_line = 0;              // of the last token
  size_t begin = 0, end = 0;     // byte range
  // Binary and Unary: the operator. Index: the `.` or `[`. MethodCall: the
  // method's name. Call: the arguments' first token.
  int op_line = 0, op_column = 0;
  size_t op_begin = 0, op_end = 0;

  std::string text;              // Name, String's value, number as written, MethodCall's method
  Variable* variable = nullptr;  // Name: null for a global
  int levels_out = 0;            // Name: how many functions out the variable was declared
  Expression* left = nullptr;    // Binary's left; Unary's and Parenthesized's operand; Index's object; a call's callee
  Expression* right = nullptr;   // Binary's right; Index's key
  std::vector<Expression*> items;  // a call's arguments; Table: values and computed keys, in order
  std::vector<std::string> keys;   // Table: of each item the name before its `=`, empty without one
  bool bare_argument = false;      // a call `f{...}` or `f"..."`: no parentheses
  struct Function* function = nullptr;
};

struct Function {
  int id = 0;  // in the order in which they begin; 0 is the main function
  Function* parent = nullptr;
  int line = 0;                 // of the keyword `function`; 0: main
  size_t keyword_begin = 0;     // byte of the keyword
  size_t parameters_begin = 0;  // byte behind the `(`
  bool has_parameters = false;  // something stands between the parentheses
  bool is_method = false, is_vararg = false;
  std::vector<Variable*> parameters;  // `self` included
  Block* body = nullptr;
};

enum class StatementKind : uint8_t {
  Local,
  LocalFunction,
  Function,
  Assign,
  Call,
  If,
  While,
  NumericFor,
  GenericFor,
  Repeat,
  Do,
  Return,
  Break,
  Goto,
  Label,
};

struct Statement {
  StatementKind kind = StatementKind::Do;
  int line = 0, column = 0;
  int end_line = 0;
  size_t begin = 0, end = 0;
  std::vector<Variable*> variables;  // Local, LocalFunction, both loops
  std::vector<Expression*> targets;  // Assign; Function: the one target
  std::vector<size_t> then_begins;   // If: bytes of the `then`s
  size_t else_begin = 0;             // If: byte of the `else`, 0 without one
  size_t method_colon = 0;           // Function: byte of the `:`, 0 without one
  std::vector<Expression*>
      values;  // right sides, loop bounds, returned values, the call, conditions (one per `if`/`elseif`)
  std::vector<Block*> blocks;    // bodies; If: one per condition, then the `else`
  Function* function = nullptr;  // LocalFunction, Function
  std::string label;             // Goto, Label
};

struct Block {
  std::vector<Statement*> statements;
};

struct Chunk {
  size_t start = 0;  // where the source begins, behind a byte order mark and a `#` line
  Function* main = nullptr;
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::deque<Block> blocks;
  std::deque<Function> functions;
  std::deque<Variable> variables;
};

}  // namespace triage::lua::rewriter
