#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/graph.h>

#include <charconv>
#include <unordered_map>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/lexer.h"
#include "runtime/graph/text/tensor_text.h"
#include "runtime/graph/verifier.h"

namespace triage::graph {
namespace {

// Inputs and constants are looked up one by one in many places.
constexpr size_t kMostNamed = 10'000;
constexpr int64_t kMostSpan = 64'000'000;  // elements of memory behind all constants with strides, mostly unused

template <typename T>
bool read_all(std::string_view text, T& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// "# repair.lua:3", "# repair.lua:3 in layer#2"
Source source_of(const std::string& comment) {
  const size_t colon = comment.rfind(':');  // there is none in the name of a region
  if (comment.substr(0, 2) != "# " || colon == std::string::npos || colon < 2) return {};
  std::string_view line = std::string_view(comment).substr(colon + 1), region;
  if (const size_t in = line.find(" in "); in != std::string_view::npos) {
    region = line.substr(in + 4);
    line = line.substr(0, in);
  }
  Source source;
  if (!read_all(line, source.line) || !unescape(comment.substr(2, colon - 2), source.file)) return {};
  source.region = region;
  return source;
}

class GraphParser {
 public:
  explicit GraphParser(const std::string& text) : tokens_(tokens_of(text)) {}

  Graph run() {
    parse_header();
    while (!peek().is_word("return")) parse_statement();
    parse_outputs();
    number_named_values();
    return std::move(graph_);
  }

 private:
  // --- tokens ---
  const GraphToken& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const GraphToken& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  [[noreturn]] static void fail(const GraphToken& token, const std::string& what) {
    fail_at(token.line, token.column, what);
  }

  [[noreturn]] void fail_expected(const std::string& expected) const {
    const GraphToken& token = peek();
    std::string came = token.type == GraphToken::Type::end      ? "the end of the text"
                       : token.type == GraphToken::Type::value  ? "`%" + token.text + "`"
                       : token.type == GraphToken::Type::string ? "the string " + string_literal(token.text)
                                                                : "`" + token.text + "`";
    fail(token, fmt::format("expected {}, got {}", expected, came));
  }

  bool accept(std::string_view sign) {
    if (!peek().is(sign)) return false;
    take();
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!peek().is_word(word)) return false;
    take();
    return true;
  }
  const GraphToken& expect(std::string_view sign, const std::string& where) {
    if (!peek().is(sign)) fail_expected(fmt::format("`{}` {}", sign, where));
    return take();
  }
  const GraphToken& expect(GraphToken::Type type, const std::string& what) {
    if (peek().type != type) fail_expected(what);
    return take();
  }
  std::string name(const std::string& what) {
    if (peek().type != GraphToken::Type::word && peek().type != GraphToken::Type::string) fail_expected(what);
    return take().text;
  }

  // --- values ---
  uint32_t number_of(const GraphToken& token) {
    uint32_t id = 0;
    if (!read_all(token.text, id) || id > 100'000'000)
      fail(token, fmt::format("`%{}` is not a value: names start with a letter", token.text));
    return id;
  }

  /// The name `3` (written %"3") is not the number 3.
  static std::string key_of(const GraphToken& token) { return (token.named ? "name " : "number ") + token.text; }

  void remember(const GraphToken& token, Value* value) {
    if (!token.named)
      graph_.set_id(value, number_of(token));
    else if (graph_.inputs().size() + graph_.constants().size() > kMostNamed)
      fail(token, fmt::format("the graph has more than {} inputs and constants", kMostNamed));
    if (!values_.emplace(key_of(token), value).second) fail(token, fmt::format("`%{}` is defined twice", token.text));
  }

  Value* find(const GraphToken& token) const {
    auto found = values_.find(key_of(token));
    if (found == values_.end()) fail(token, fmt::format("`%{}` is not defined before it is used", token.text));
    return found->second;
  }

  std::optional<TensorMeta> parse_meta() {
    if (!accept(":")) return std::nullopt;
    TensorLayout layout = parse_layout();
    return TensorMeta{layout.dtype, layout.sizes, layout.device};
  }

  TensorLayout parse_layout() {
    const GraphToken& token = expect(GraphToken::Type::string, "a type such as \"f32[32, 512]\"");
    try {
      return layout_of(token.text);
    } catch (const GraphError& error) {
      fail(token, error.what());
    }
  }

  // --- header and outputs ---
  void parse_header() {
    if (!accept_word("graph")) fail_expected("`graph NAME(...)`");
    graph_ = Graph(name("the graph's name"));
    expect("(", "before the inputs");
    while (!peek().is(")")) {
      const GraphToken& token = expect(GraphToken::Type::value, "an input such as %z");
      if (!token.named) fail(token, fmt::format("input `%{}` needs a name that starts with a letter", token.text));
      auto meta = parse_meta();
      bool flags = accept_word("flags");
      InputKind kind = accept_word("param") ? InputKind::param : InputKind::tensor;
      Value* value = graph_.add_input(token.text, kind, std::move(meta));
      graph_.edit(value).is_flags = flags;
      remember(token, value);
      if (!accept(",")) break;
    }
    expect(")", "after the inputs");
    expect(":", "after the inputs");
  }

  void parse_outputs() {
    take();  // return
    std::vector<Value*> outputs;
    std::vector<std::string> names;
    while (peek().type != GraphToken::Type::end) {
      if (peek(1).is("=")) {
        names.push_back(name("an output's name"));
        take();
      }
      outputs.push_back(find(expect(GraphToken::Type::value, "an output such as %3")));
      if (!names.empty() && names.size() != outputs.size()) fail(peek(), "either all outputs have names or none");
      if (!accept(",")) break;
    }
    if (peek().type != GraphToken::Type::end) fail_expected("the end of the text after the outputs");
    graph_.set_outputs(std::move(outputs), std::move(names));
  }

  /// Numbers of values with names are not printed; they must only differ from those of the others.
  void number_named_values() {
    uint32_t next = 0;
    for (const auto& node : graph_.nodes())
      for (const Value* result : node->results) next = std::max(next, result->id + 1);
    for (const auto& input : graph_.inputs()) graph_.set_id(input.value, next++);
    for (const auto& constant : graph_.constants()) graph_.set_id(constant.value, next++);
  }

  // --- statements ---
  struct ResultDeclaration {
    GraphToken token;
    std::optional<TensorLayout> layout;
    bool flags = false;
  };

  void parse_statement() {
    std::vector<ResultDeclaration> results;
    if (peek().type == GraphToken::Type::value) {
      do {
        ResultDeclaration result{expect(GraphToken::Type::value, "a result such as %3"), std::nullopt, false};
        if (accept(":")) result.layout = parse_layout();
        result.flags = accept_word("flags");
        results.push_back(std::move(result));
      } while (accept(","));
      expect("=", "after the results");
    }
    if (peek().is_word("constant")) return parse_constant(results);
    parse_node(results);
  }

  void parse_node(const std::vector<ResultDeclaration>& results) {
    const GraphToken op_token = expect(GraphToken::Type::word, "an operator such as aten::add.Tensor, or `return`");
    c10::OperatorHandle op = find_op(op_token);
    std::vector<Operand> operands = parse_arguments(op);
    Node* node = graph_.append(op, std::move(operands), results.size(), source_of(tokens_[at_ - 1].comment));
    for (size_t i = 0; i < results.size(); ++i) {
      const ResultDeclaration& result = results[i];
      if (result.token.named)
        fail(result.token, fmt::format("results are numbered: write %0, not %{}", result.token.text));
      Value* value = node->results[i];
      remember(result.token, value);
      MutableValue& fields = graph_.edit(value);
      if (result.layout) fields.meta = TensorMeta{result.layout->dtype, result.layout->sizes, result.layout->device};
      fields.is_flags = result.flags;
    }
    check_call(op_token, *node);
  }

  static void check_call(const GraphToken& token, const Node& node) {
    try {
      verify_call(node);
    } catch (const GraphError& error) {
      fail(token, error.what());
    }
  }

  static c10::OperatorHandle find_op(const GraphToken& token) {
    size_t colons = token.text.find("::"), dot = token.text.find('.');
    if (colons == std::string::npos)
      fail(token, fmt::format("expected an operator such as aten::add.Tensor, or `return`, got `{}`", token.text));
    std::string overload = dot == std::string::npos ? "" : token.text.substr(dot + 1);
    auto op = c10::Dispatcher::singleton().findSchema({token.text.substr(0, dot), overload});
    if (!op) fail(token, fmt::format("there is no operator `{}` in this LibTorch", token.text));
    return *op;
  }

  std::vector<Operand> parse_arguments(const c10::OperatorHandle& op) {
    const auto& schema = op.schema();
    expect("(", "before the arguments");
    std::vector<std::optional<Operand>> given(schema.arguments().size());
    for (size_t position = 0; !peek().is(")"); ++position) {
      const GraphToken token = peek();
      size_t index = peek(1).is("=") ? keyword(schema, given) : position;
      if (index >= given.size()) fail(token, fmt::format("`{}` takes {} arguments", op_name(op), given.size()));
      given[index] = parse_operand(schema.arguments()[index]);
      if (!accept(",")) break;
    }
    const GraphToken close = expect(")", "after the arguments");
    std::vector<Operand> operands;
    for (size_t i = 0; i < given.size(); ++i) {
      const auto& argument = schema.arguments()[i];
      if (given[i])
        operands.push_back(std::move(*given[i]));
      else if (argument.default_value())
        operands.emplace_back(*argument.default_value());
      else
        fail(close, fmt::format("argument `{}` of `{}` is missing", argument.name(), op_name(op)));
    }
    return operands;
  }

  size_t keyword(const c10::FunctionSchema& schema, const std::vector<std::optional<Operand>>& given) {
    const GraphToken token = expect(GraphToken::Type::word, "an argument's name");
    take();  // =
    auto index = schema.argumentIndexWithName(token.text);
    if (!index) fail(token, fmt::format("`{}` has no argument `{}`", schema.name(), token.text));
    auto at = static_cast<size_t>(*index);
    if (given[at]) fail(token, fmt::format("argument `{}` is given twice", token.text));
    return at;
  }

  // --- operands ---
  Operand parse_operand(const c10::Argument& argument) {
    ArgumentType type = type_of(argument);
    if (accept_word("None")) return c10::IValue();  // verify_call tells where it may not stand
    if (!type.list || !peek().is("[")) return parse_item(type, argument.name());
    take();
    std::vector<Operand> items;
    bool plain = type.kind != Kind::tensor;
    while (!peek().is("]")) {
      items.push_back(accept_word("None") ? Operand(c10::IValue()) : parse_item(type, argument.name()));
      plain = plain && items.back().constant();
      if (!accept(",")) break;
    }
    expect("]", "at the end of the list");
    if (!plain) return items;
    c10::impl::GenericList list(type.element);
    for (const auto& item : items) list.push_back(*item.constant());
    return c10::IValue(std::move(list));
  }

  Operand parse_item(const ArgumentType& type, const std::string& argument) {
    if (peek().type == GraphToken::Type::value) return find(take());
    switch (type.kind) {
      case Kind::tensor:
        return parse_number(argument);
      case Kind::number:
        return parse_number(argument);
      case Kind::boolean:
        return parse_number(argument);
      case Kind::other:  // what else LibTorch has shows as numbers or strings
        return peek().type == GraphToken::Type::string ? c10::IValue(take().text) : parse_number(argument);
      case Kind::integer:
        return parse_integer(type.text(), argument);
      case Kind::real:
        return parse_float(argument);
      case Kind::string:
        return c10::IValue(expect(GraphToken::Type::string, fmt::format("a string for `{}`", argument)).text);
      case Kind::device:
        return parse_device(argument);
      case Kind::dtype: {
        auto dtype = dtype_of_name(peek().text);
        return parse_named(dtype ? std::optional<int64_t>(static_cast<int64_t>(*dtype)) : std::nullopt,
                           "a dtype such as float32", argument);
      }
      case Kind::layout:
        return parse_named(layout_of_name(peek().text), "a layout such as strided", argument);
      case Kind::memory_format:
        return parse_named(memory_format_of_name(peek().text), "a memory format such as channels_last", argument);
      case Kind::generator:
        break;
    }
    fail_expected(fmt::format("None for `{}`", argument));
  }

  c10::IValue parse_named(std::optional<int64_t> index, const std::string& what, const std::string& argument) {
    if (peek().type != GraphToken::Type::word || !index) fail_expected(fmt::format("{} for `{}`", what, argument));
    take();
    return *index;
  }

  c10::IValue parse_device(const std::string& argument) {
    const GraphToken& token =
        expect(GraphToken::Type::string, fmt::format("a device such as \"cuda:0\" for `{}`", argument));
    try {
      return c10::Device(token.text);
    } catch (const std::exception&) {
      fail(token, fmt::format("\"{}\" is not a device; write one such as \"cpu\" or \"cuda:0\"", token.text));
    }
  }

  c10::IValue parse_integer(const std::string& type, const std::string& argument) {
    int64_t value = 0;
    if (peek().type != GraphToken::Type::number || !read_all(peek().text, value))
      fail_expected(fmt::format("{} for `{}`", type == "int" ? "an integer" : type, argument));
    take();
    return value;
  }

  bool is_float_word() const { return peek().is_word("nan") || peek().is_word("inf"); }

  c10::IValue parse_float(const std::string& argument) {
    double value = 0;
    if (!parse_element(at::kDouble, &value)) fail_expected(fmt::format("a float for `{}`", argument));
    return value;
  }

  /// int, float, bool or complex, by how it is written.
  c10::IValue parse_number(const std::string& argument) {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    if (peek().is_word("complex")) {
      double parts[2];
      if (!parse_element(at::kComplexDouble, parts)) fail_expected("two floats");
      return c10::complex<double>(parts[0], parts[1]);
    }
    int64_t integer = 0;
    if (peek().type == GraphToken::Type::number && read_all(peek().text, integer)) {
      take();
      return integer;
    }
    if (peek().type != GraphToken::Type::number && !is_float_word())
      fail_expected(fmt::format("a value for `{}`", argument));
    return parse_float(argument);
  }

  // --- constants ---
  void parse_constant(const std::vector<ResultDeclaration>& results) {
    const GraphToken keyword = take();
    if (results.size() != 1 || !results[0].layout)
      fail(keyword, "a constant is written %name: \"f32[3]\" = constant [...]");
    const GraphToken& token = results[0].token;
    if (!token.named) fail(token, fmt::format("constant `%{}` needs a name that starts with a letter", token.text));
    bool variable = false, requires_grad = false, wrapped = false;
    if (accept("(")) {
      do {
        if (accept_word("variable"))
          variable = true;
        else if (accept_word("requires_grad"))
          requires_grad = true;
        else if (accept_word("wrapped_number"))
          wrapped = true;
        else
          fail_expected("`variable`, `requires_grad` or `wrapped_number`");
        expect("=", "after the property");
        if (!accept_word("True")) fail_expected("`True`");
      } while (accept(","));
      expect(")", "after the properties of the constant");
    }
    at::Tensor tensor = parse_values(token, *results[0].layout);
    if (tensor.is_meta()) fail(token, fmt::format("constant `%{}` has no values on the device meta", token.text));
    if (requires_grad) tensor.requires_grad_();
    if (wrapped && tensor.dim() > 0)
      fail(token, fmt::format("`%{}` has dimensions; a wrapped number has none", token.text));
    if (wrapped) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (values_.count(key_of(token))) fail(token, fmt::format("`%{}` is defined twice", token.text));
    Value* value = variable ? graph_.add_variable(std::move(tensor), token.text)
                            : graph_.add_constant(std::move(tensor), token.text);
    graph_.edit(value).is_flags = results[0].flags;
    remember(token, value);
  }

  at::Tensor parse_values(const GraphToken& token, const TensorLayout& layout) {
    int64_t count = 1;
    for (int64_t size : layout.sizes)
      if (__builtin_mul_overflow(count, size, &count))
        fail(token, fmt::format("the sizes of `%{}` are too large", token.text));
    if (count > kPrintedElements)
      fail(token, fmt::format("constant `%{}` has {} elements, but the text of a graph holds at most {} of them; save "
                              "the policy or export the graph to keep all values",
                              token.text, count, kPrintedElements));
    if (peek().is("..."))
      fail(peek(), fmt::format("the values of constant `%{}` were left out of this text", token.text));
    at::Tensor values = at::empty(layout.sizes, at::TensorOptions().dtype(layout.dtype));
    char* out = static_cast<char*>(values.data_ptr());
    if (count == 0) {
      expect("[", "for a constant without elements");
      expect("]", "for a constant without elements");
    } else {
      parse_nested(layout.dtype, layout.sizes, out);
    }
    if (layout.strides) values = with_strides(token, values, *layout.strides);
    return values.to(layout.device);
  }

  /// The same values laid out in memory with other strides, those of an expanded tensor (0) among them.
  at::Tensor with_strides(const GraphToken& token, const at::Tensor& values, const std::vector<int64_t>& strides) {
    int64_t span = values.numel() ? 1 : 0;
    for (int64_t dim = 0; dim < values.dim() && span; ++dim) {
      int64_t stride = strides[static_cast<size_t>(dim)];
      if (stride > span_left_ || (span += (values.size(dim) - 1) * stride) > span_left_)
        fail(token, fmt::format("the strides of `%{}` are too large", token.text));
    }
    span_left_ -= span;
    at::Tensor storage = at::zeros({span}, values.options());
    at::Tensor result = storage.as_strided(values.sizes(), strides);
    size_t item = static_cast<size_t>(values.element_size());
    const char* from = static_cast<const char*>(values.data_ptr());
    char* to = static_cast<char*>(storage.data_ptr());
    for (int64_t i = 0; i < values.numel(); ++i) {
      int64_t rest = i, offset = 0;
      for (int64_t dim = values.dim() - 1; dim >= 0; --dim) {
        offset += rest % values.size(dim) * strides[static_cast<size_t>(dim)];
        rest /= values.size(dim);
      }
      std::copy_n(from + static_cast<size_t>(i) * item, item, to + static_cast<size_t>(offset) * item);
    }
    return result;
  }

  void parse_nested(at::ScalarType dtype, at::IntArrayRef sizes, char*& out) {
    if (sizes.empty()) {
      const GraphToken& token = peek();
      if (!parse_element(dtype, out))
        fail(token, fmt::format("`{}` is not a value of dtype {}", token.text, dtype_name(dtype)));
      out += c10::elementSize(dtype);
      return;
    }
    expect("[", "for the elements of a dimension");
    for (int64_t i = 0; i < sizes[0]; ++i) {
      if (i) expect(",", fmt::format("(expected {} elements, got {})", sizes[0], i));
      parse_nested(dtype, sizes.slice(1), out);
    }
    expect("]", fmt::format("after {} elements", sizes[0]));
  }

  bool parse_element(at::ScalarType dtype, void* out) {
    if (c10::isComplexType(dtype)) {
      at::ScalarType part = c10::toRealValueType(dtype);
      char* parts = static_cast<char*>(out);
      if (!accept_word("complex") || !accept("(") || !parse_element(part, parts) || !accept(",") ||
          !parse_element(part, parts + c10::elementSize(part)))
        return false;
      return accept(")");
    }
    bool bits = peek().is_word("nan") && peek(1).is("(");
    if (bits) {
      take();
      take();
    }
    if ((peek().type != GraphToken::Type::number && peek().type != GraphToken::Type::word) ||
        !read_element(peek().text, bits, dtype, out))
      return false;
    take();
    return !bits || accept(")");
  }

  std::vector<GraphToken> tokens_;
  size_t at_ = 0;
  int64_t span_left_ = kMostSpan;
  Graph graph_;
  std::unordered_map<std::string, Value*> values_;
};

}  // namespace

Graph parse(const std::string& text) {
  try {
    Graph graph = GraphParser(text).run();
    verify(graph);
    return graph;
  } catch (const c10::Error& error) {  // of a constant: on a device that is not here, say
    throw GraphError(error.what_without_backtrace());
  }
}

}  // namespace triage::graph
