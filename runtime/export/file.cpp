// The file of an exported program: a line that says so, a JSON object, behind it the graph as it is printed, and a
// checksum of it all. Constants that the graph's text leaves out (more than 1,000 elements) stand in the object, as
// base64 of their bytes, and in the text as inputs of their names.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/error.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "runtime/compat/readable_values.h"
#include "runtime/export/state.h"
#include "runtime/files/checksum.h"
#include "runtime/files/formats.h"
#include "runtime/files/json.h"
#include "runtime/graph/contracts.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/tensor_text.h"

namespace triage::exporting {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const std::array<int8_t, 256>& values() {
  static const std::array<int8_t, 256> table = [] {
    std::array<int8_t, 256> all{};
    all.fill(-1);
    for (size_t i = 0; i < kLetters.size(); ++i) all[static_cast<unsigned char>(kLetters[i])] = static_cast<int8_t>(i);
    return all;
  }();
  return table;
}

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Throws GraphError where `text` is none.
std::string from_base64(std::string_view text) {
  if (text.size() % 4 != 0) throw GraphError("the values of a constant are truncated");
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t padding = i + 4 < text.size() ? 0 : text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int8_t value = k < 4 - padding ? values()[static_cast<unsigned char>(text[i + k])] : int8_t{0};
      if (value < 0) throw GraphError("the values of a constant hold a character that is not base64");
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

using Json = nlohmann::ordered_json;  // to write: the fields in a reader's order
using Parsed = nlohmann::json;
using graph::Graph;
using graph::Operand;
using graph::Value;

constexpr std::string_view kKind = "triage exported program, format ", kFormat = "2\n";
constexpr std::string_view kRule = "\n---\n";
constexpr std::string_view kChecksum = "checksum ";

bool is_large(const graph::Constant& constant) { return constant.tensor.numel() > graph::kPrintedElements; }

/// A copy of `graph` in which `lifted` constants are inputs, or inputs that `held` names are constants again.
class Copier {
 public:
  struct HeldConstant {
    at::Tensor tensor;
    bool variable = false;
  };
  Copier(const Graph& graph, bool lift, std::unordered_map<std::string, HeldConstant> held)
      : graph_(graph), lift_(lift), held_(std::move(held)), copy_(graph.name()) {}

  Graph run() {
    for (const auto& input : graph_.inputs()) {
      const auto held = held_.find(input.value->name);
      if (held == held_.end())
        add(*input.value, copy_.add_input(input.value->name, input.kind, input.value->meta));
      else
        add(*input.value, held->second.variable ? copy_.add_variable(held->second.tensor, input.value->name)
                                                : copy_.add_constant(held->second.tensor, input.value->name));
    }
    for (const auto& constant : graph_.constants()) {
      const std::string& name = constant.value->name;
      add(*constant.value, lift_ && is_large(constant)
                               ? copy_.add_input(name, graph::InputKind::tensor, constant.value->meta)
                           : constant.variable ? copy_.add_variable(constant.tensor, name)
                                               : copy_.add_constant(constant.tensor, name));
    }
    for (const auto& node : graph_.nodes()) add(*node);
    std::vector<Value*> outputs;
    for (const Value* output : graph_.outputs()) outputs.push_back(map_.at(output));
    copy_.set_outputs(std::move(outputs), graph_.output_names());
    return std::move(copy_);
  }

 private:
  void add(const Value& from, Value* to) {
    copy_.edit(to).is_flags = from.is_flags;
    map_[&from] = to;
  }

  void add(const graph::Node& node) {
    std::vector<Operand> operands = node.operands;
    for (auto& operand : operands) graph::for_each_use(operand, [&](Value*& value) { value = map_.at(value); });
    graph::Node* twin = copy_.append(node.op, std::move(operands), node.results.size(), node.source);
    for (size_t i = 0; i < node.results.size(); ++i) {
      copy_.edit(twin->results[i]).meta = node.results[i]->meta;
      add(*node.results[i], twin->results[i]);
    }
  }

  const Graph& graph_;
  bool lift_;
  std::unordered_map<std::string, HeldConstant> held_;
  Graph copy_;
  std::unordered_map<const Value*, Value*> map_;
};

Json tensor_json(const graph::Constant& constant) {
  if (constant.tensor.layout() != at::kStrided || constant.tensor.is_quantized())
    throw FileError(fmt::format("constant `{}` of the program is {} and cannot be saved; make it dense first",
                                constant.value->name, c10::str(constant.tensor.layout())));
  const at::Tensor data = compat::readable_values(constant.tensor);
  return {{"name", constant.value->name},
          {"type", graph::layout_text(data)},
          {"device", constant.tensor.device().str()},
          {"variable", constant.variable},
          {"requires_grad", constant.tensor.requires_grad()},
          {"data", base64({static_cast<const char*>(data.data_ptr()), data.nbytes()})}};
}

/// A whole number of at least 0. (The library would make one of anything that is a number.)
int64_t count_of(const Parsed& json) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > INT64_MAX)
    throw GraphError("it holds something other than a size where one is expected");
  return json.get<int64_t>();
}

at::Tensor tensor_of(const Parsed& json) {
  const graph::TensorLayout layout = graph::layout_of(json.at("type").get_ref<const std::string&>());
  std::string bytes = from_base64(json.at("data").get_ref<const std::string&>());
  if (files::checked_bytes(layout.sizes, c10::elementSize(layout.dtype)) != bytes.size())
    throw GraphError(fmt::format("constant `{}` holds {} bytes, which does not match its type",
                                 json.at("name").get<std::string>(), bytes.size()));
  if (layout.dtype == at::kBool) files::normalize_bools(bytes.data(), bytes.size());
  at::Tensor tensor = at::empty(layout.sizes, at::TensorOptions().dtype(layout.dtype));
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  tensor = tensor.to(c10::Device(json.at("device").get<std::string>()));
  if (json.at("requires_grad").get<bool>()) tensor.requires_grad_();
  return tensor;
}

Json number_json(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  return Json{{"float", graph::float_text(value.toDouble())}};  // NaN and Inf are no JSON
}

c10::IValue number_of(const Parsed& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return count_of(json);
  if (json.is_number_integer()) return json.get<int64_t>();
  double value = 0;
  const std::string text = json.at("float").get<std::string>();
  if (!graph::read_element(text, false, at::kDouble, &value))
    throw GraphError(fmt::format("\"{}\" is not a number", text));
  return value;
}

/// What stands behind the first line.
std::string_view without_magic(std::string_view text) {
  if (text.substr(0, kKind.size()) != kKind)
    throw GraphError(fmt::format("it does not begin with \"{}\"; program:save(path) writes such files",
                                 kKind.substr(0, kKind.find(','))));
  text.remove_prefix(kKind.size());
  if (text.substr(0, kFormat.size()) != kFormat)
    throw GraphError(fmt::format("it has format {}, but this version of triage reads format {}; export it again",
                                 text.substr(0, std::min<size_t>(text.find('\n'), 20)),
                                 kFormat.substr(0, kFormat.size() - 1)));
  return text.substr(kFormat.size());
}

constexpr const char* kChanged =
    "its checksum does not match, so it changed after it was saved; use an intact copy, or export it again";

ExportOptions options_of(const Parsed& json) {
  ExportOptions options;
  if (json.at("dynamic_dims").size() > kMostSymbolicDims || json.at("bounds").size() > kMostSymbolicDims)
    throw GraphError(fmt::format("it names more than {} sizes", kMostSymbolicDims));
  for (const Parsed& dim : json.at("dynamic_dims"))
    options.dynamic_dims.push_back(
        {static_cast<size_t>(count_of(dim.at("input"))), count_of(dim.at("dim")), dim.at("symbol").get<std::string>()});
  for (const auto& [symbol, range] : json.at("bounds").items())
    options.bounds[symbol] = {count_of(range.at(0)), count_of(range.at(1))};
  for (const Parsed& same : json.at("same_inputs")) options.same_inputs.push_back(static_cast<size_t>(count_of(same)));
  return options;
}

std::unordered_map<std::string, Copier::HeldConstant> constants_of(const Parsed& json) {
  std::unordered_map<std::string, Copier::HeldConstant> held;
  for (const Parsed& constant : json) {
    const std::string name = constant.at("name").get<std::string>();
    if (!held.try_emplace(name, Copier::HeldConstant{tensor_of(constant), constant.at("variable").get<bool>()}).second)
      throw GraphError(fmt::format("it holds constant `{}` twice", name));
  }
  return held;
}

/// What the file holds values for stands in its graph as an input of that type.
void check_held(const Graph& lifted, const std::unordered_map<std::string, Copier::HeldConstant>& held) {
  size_t found = 0;
  for (const auto& input : lifted.inputs()) {
    const auto known = held.find(input.value->name);
    if (known == held.end()) continue;
    ++found;
    const auto& meta = input.value->meta;
    const at::Tensor& tensor = known->second.tensor;
    if (input.kind != graph::InputKind::tensor || !meta || meta->dtype != tensor.scalar_type() ||
        tensor.sizes() != at::IntArrayRef(meta->sizes))
      throw GraphError(fmt::format("its values for `{}` do not have the type that its graph declares", known->first));
  }
  if (found != held.size()) throw GraphError("it holds values for a constant that its graph lacks");
}

/// Nothing where the content reads well, but is not what was saved: a flipped bit is a graph as well, of something
/// else.
std::shared_ptr<ExportedProgram::State> read(std::string_view content, bool as_saved, bool trusted) {
  const size_t rule = content.find(kRule);
  if (rule == std::string::npos) throw GraphError("it ends before its graph begins");
  const Parsed json = files::parse_json(content.substr(0, rule), "the part before its graph");
  ExportOptions options = options_of(json);
  std::vector<c10::IValue> params;
  for (const Parsed& value : json.at("params")) params.push_back(number_of(value));
  std::unordered_map<std::string, Copier::HeldConstant> held = constants_of(json.at("constants"));
  const Graph lifted = graph::parse(std::string(content.substr(rule + kRule.size())));
  check_held(lifted, held);
  if (!as_saved) return nullptr;
  Graph graph = Copier(lifted, false, std::move(held)).run();
  if (!trusted) graph::check_contracts(graph);
  options.by_contract = !trusted;
  return std::make_shared<ExportedProgram::State>(std::move(graph), std::move(options), std::move(params),
                                                  json.at("notes").get<std::vector<std::string>>(),
                                                  ExportedProgram::State::Origin::file);
}

}  // namespace

std::string to_text(const Graph& graph, const ExportOptions& options, const std::vector<c10::IValue>& params,
                    const std::vector<std::string>& notes) {
  Json dims = Json::array(), bounds = Json::object(), defaults = Json::array(), constants = Json::array();
  for (const DynamicDim& dim : options.dynamic_dims)
    dims.push_back({{"input", dim.input}, {"dim", dim.dim}, {"symbol", dim.symbol}});
  for (const auto& [symbol, range] : options.bounds) bounds[symbol] = {range.min, range.max};
  for (const c10::IValue& value : params) defaults.push_back(number_json(value));
  for (const graph::Constant& constant : graph.constants())
    if (is_large(constant)) constants.push_back(tensor_json(constant));
  const Json json = {{"dynamic_dims", dims}, {"bounds", bounds}, {"same_inputs", options.same_inputs},
                     {"params", defaults},   {"notes", notes},   {"constants", constants}};
  const std::string text =
      fmt::format("{}{}{}{}{}", kKind, kFormat, json.dump(1, ' ', false, Json::error_handler_t::replace), kRule,
                  graph::print(Copier(graph, true, {}).run()));
  return text + files::checksum_line(kChecksum, files::checksum(text));
}

void check_kind(std::string_view beginning) { without_magic(beginning); }

std::shared_ptr<ExportedProgram::State> from_text(const std::string& text, bool trusted) {
  const auto [checked, as_saved] = files::without_checksum(text, kChecksum);
  const std::string_view content = without_magic(checked);
  std::shared_ptr<ExportedProgram::State> program;
  try {
    program = read(content, as_saved, trusted);
  } catch (const std::exception& error) {
    if (as_saved) throw;
    throw GraphError(fmt::format("{} ({})", error.what(), kChanged));
  }
  if (!program) throw GraphError(kChanged);
  return program;
}

}  // namespace triage::exporting
