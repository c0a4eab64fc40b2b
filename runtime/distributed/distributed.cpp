#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/flags.h>
#include <triage/location.h>
#include <triage/runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/compat/readable_values.h"
#include "runtime/distributed/dist_functions.h"
#include "runtime/distributed/exchange.h"
#include "runtime/files/checksum.h"
#include "runtime/messages/boundary.h"
#include "runtime/policy/loading.h"

namespace triage {
namespace {

using Json = nlohmann::ordered_json;
using Operation = Exchange::Operation;

/// Throws on all ranks unless all gave the same number for an option. `text_of` shows one.
template <class TextOf>
void check_option(const Exchange& exchange, const std::vector<Exchange::Given>& given, size_t column, const char* name,
                  const TextOf& text_of) {
  for (size_t other = 1; other < given.size(); ++other)
    if (given[other][column] != given[0][column])
      throw DistributedError(fmt::format("{}: `{}` must be the same on all ranks; rank {} gave {} and rank 0 gave {}",
                                         exchange.who(), name, other, text_of(given[other][column]),
                                         text_of(given[0][column])));
}

/// What `parse` makes of the values of all ranks, by rank. `own` makes that of this one. CBOR and not JSON, because
/// names of locations may be any bytes.
template <class Make, class Parse>
auto gather(Exchange& exchange, const Make& own, int64_t option, const char* option_name, const Parse& parse) {
  const std::string bytes = exchange.own([&] {
    const std::vector<uint8_t> cbor = Json::to_cbor(own());
    return std::string(cbor.begin(), cbor.end());
  });
  const auto given = exchange.give({static_cast<int64_t>(bytes.size()), option});
  check_option(exchange, given, 1, option_name, [](int64_t number) { return number; });
  std::vector<int64_t> lengths;
  for (const auto& one : given) lengths.push_back(one[0]);
  std::vector<decltype(parse(Json(), int64_t{}))> all;
  const std::vector<std::string> texts = exchange.gather(bytes, lengths);
  try {
    for (const std::string& text : texts) all.push_back(parse(Json::from_cbor(text), static_cast<int64_t>(all.size())));
  } catch (const std::exception& error) {
    exchange.fail(fmt::format("{}: what rank {} sent cannot be read: {}. All ranks must run the same version of triage",
                              exchange.who(), all.size(), Exchange::text_of(error)));
  }
  return all;
}

bool agree(int64_t bad, int64_t samples, Exchange& exchange, const AgreeOptions& options) {
  const auto given = exchange.give({bad, samples, std::bit_cast<int64_t>(options.share)});
  check_option(exchange, given, 2, "share", [](int64_t bits) { return std::bit_cast<double>(bits); });
  int64_t all_bad = 0, all = 0;
  for (const auto& one : given) {
    all_bad += one[0];
    all += one[1];
  }
  return static_cast<double>(all_bad) > options.share * static_cast<double>(all);
}

/// Throws on all ranks: here InputError.
void check_share(Exchange& exchange, const AgreeOptions& options) {
  if (!(options.share >= 0 && options.share < 1))
    exchange.refuse(fmt::format("agree: expected a `share` from 0 to below 1, got {}", options.share));
}

Json to_json(const ErrorReport& report) {
  Json counts = Json::array(), examples = Json::array();
  for (const auto& one : report.counts)
    counts.push_back({one.location, to_int(one.code), to_int(one.severity), one.count, one.code_name});
  for (const auto& one : report.examples) examples.push_back({one.sample, one.text});
  return {{"samples", report.samples},
          {"flagged", report.flagged},
          {"dropped", report.dropped},
          {"counts", counts},
          {"examples", examples}};
}

ErrorReport from_json(const Json& json, int64_t rank) {
  ErrorReport report;
  report.samples = json.at("samples");
  report.flagged = json.at("flagged");
  report.dropped = json.at("dropped");
  for (const Json& one : json.at("counts"))
    report.counts.push_back({one.at(0), code_from(one.at(1).get<int64_t>()), severity_from(one.at(2).get<int64_t>()),
                             one.at(3).get<int64_t>(), one.size() > 4 ? one.at(4).get<std::string>() : std::string()});
  for (const Json& one : json.at("examples")) report.examples.push_back({rank, one.at(0).get<int64_t>(), one.at(1)});
  return report;
}

/// The first example of each rank, then the second of each, until there are `most`; in order of ranks.
std::vector<ErrorReport::Example> spread(const std::vector<ErrorReport>& reports, size_t most) {
  std::vector<ErrorReport::Example> chosen;
  for (size_t i = 0, before = 1; chosen.size() != before; ++i) {
    before = chosen.size();
    for (const ErrorReport& report : reports)
      if (i < report.examples.size() && chosen.size() < most) chosen.push_back(report.examples[i]);
    if (i == 0 && chosen.empty()) break;
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return chosen;
}

std::string text_of(const at::Tensor& tensor) {
  const at::Tensor plain = compat::readable_values(tensor);
  const std::string_view bytes(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  return fmt::format("{} [{}] {}", c10::toString(plain.scalar_type()), fmt::join(plain.sizes(), ", "),
                     files::checksum_text(files::checksum(bytes)));
}

std::string text_of(const ParamValue& value) { return value.is_number() ? value.text() : text_of(value.tensor()); }

std::string text_of(const c10::IValue& value) {
  if (value.isTensor()) return text_of(value.toTensor());
  if (value.isDouble()) return fmt::format("{}", value.toDouble());
  return c10::str(value);
}

/// What must be the same: a name for people, and a text that tells values apart.
Json identity(const Policy& policy, const Params& params) {
  const Signature signature = policy.signature();
  Json parts = {{"name", policy.name()},
                {"source", policy.version().hash},
                {"inputs", signature.inputs},
                {"outputs", signature.outputs}};
  for (const Param& param : signature.params) parts["default of param '" + param.name + "'"] = text_of(param.value);
  for (const auto& [name, value] : params) parts["param '" + name + "'"] = text_of(value);
  return parts;
}

/// Throws where it is no object.
Json parts_of(const Json& json, int64_t) { return json.get_ref<const Json::object_t&>(); }

/// "rank 2 differs from rank 0 in source (here 1f..., there 2a...)"; empty if all are the same.
std::string differences(const std::vector<Json>& ranks) {
  std::string text;
  const auto value_of = [](const Json& rank, const std::string& name) {
    return rank.contains(name) ? rank[name].dump(-1, ' ', false, Json::error_handler_t::replace) : "nothing";
  };
  for (size_t other = 1; other < ranks.size(); ++other) {
    Json names = ranks[0];
    names.update(ranks[other]);
    std::string parts;
    for (const auto& [name, unused] : names.items())
      if (value_of(ranks[0], name) != value_of(ranks[other], name))
        parts += fmt::format("{}{} ({}, rank 0 has {})", parts.empty() ? "" : ", ", name, value_of(ranks[other], name),
                             value_of(ranks[0], name));
    if (!parts.empty()) text += fmt::format("{}rank {} differs in {}", text.empty() ? "" : "; ", other, parts);
  }
  return text;
}

/// `options` makes them, as `report` makes the report below: what throws there is told to the other ranks.
template <class Options>
bool agree_made(const at::Tensor& bad, const Group& group, const Options& options) {
  Exchange exchange(group, Operation::agree);
  const AgreeOptions chosen = exchange.own(options);
  check_share(exchange, chosen);
  if (!bad.defined() || bad.scalar_type() != at::kBool)
    exchange.refuse(fmt::format("agree: expected a bool tensor as `bad`, such as err::is_err(f), got {}",
                                bad.defined() ? c10::toString(bad.scalar_type()) : "an undefined tensor"));
  return agree(exchange.own([&] { return bad.sum().item<int64_t>(); }), bad.numel(), exchange, chosen);
}

template <class Report>
ErrorReport reduce_made(const Report& report, const Group& group, const ReduceOptions& options) {
  Exchange exchange(group, Operation::reduce);
  const auto own = [&] {
    ErrorReport made = report();
    made.examples.resize(std::min(made.examples.size(), options.examples));
    return to_json(made);
  };
  const auto reports = gather(exchange, own, static_cast<int64_t>(options.examples), "examples", from_json);
  ErrorReport all;
  for (const ErrorReport& one : reports) all += one;
  all.examples = spread(reports, options.examples);
  return all;
}

}  // namespace

bool agree(const at::Tensor& bad, const Group& group, const AgreeOptions& options) {
  return messages::errors_only([&] { return agree_made(bad, group, [&] { return options; }); });
}

bool agree(bool bad, const Group& group, const AgreeOptions& options) {
  return messages::errors_only([&] {
    Exchange exchange(group, Operation::agree);
    check_share(exchange, options);
    return agree(bad ? 1 : 0, 1, exchange, options);
  });
}

ErrorReport reduce(const ErrorReport& report, const Group& group, const ReduceOptions& options) {
  return messages::errors_only([&] { return reduce_made([&] { return report; }, group, options); });
}

void check_same(const Policy& policy, const Group& group, const SameOptions& options) {
  messages::errors_only([&] {
    for (int done = 0;; ++done) {
      Exchange exchange(group, Operation::check_same);
      const auto own = [&] {
        if (done > 0) {
          std::this_thread::sleep_for(options.pause);
          policy.reload();
        }
        return identity(policy, options.params);
      };
      const std::string found = differences(gather(exchange, own, options.reloads, "reloads", parts_of));
      if (found.empty()) return;
      if (done >= options.reloads)
        throw DistributedError(fmt::format(
            "{}: the ranks do not run the same policy '{}'{}: {}. Give all ranks the same files and params, or set "
            "SameOptions::reloads for files that reach some ranks later",
            exchange.who(), policy.name(), done ? fmt::format(", after {} reloads", done) : "", found));
    }
  });
}

namespace {

using Tensors = std::vector<at::Tensor>;

void check_count(const char* name, const Tensors& arguments, size_t least, size_t most) {
  if (arguments.size() < least || arguments.size() > most)
    throw InputError(fmt::format("{}: expected {} tensors, got {}", name,
                                 least == most ? fmt::format("{}", most) : fmt::format("{} or {}", least, most),
                                 arguments.size()));
}

/// Who takes part in an operation that a script calls. Ranks load and test a policy at different moments: the others
/// would take an operation of a load for one of theirs.
Group taking_part(const char* name, const Group& group) {
  if (policy::Loading::now() == policy::Loading::What::source)
    throw InputError(
        fmt::format("{}: called while the file of the policy is loaded, which ranks do at different moments. Call "
                    "it in `run`",
                    name));
  return policy::Loading::now() == policy::Loading::What::tests ? Group() : group;
}

AgreeOptions options_of(const Tensors& arguments) {
  if (arguments.size() < 2) return {};
  if (arguments[1].numel() != 1)
    throw InputError(fmt::format("expected one number as `share`, such as torch.tensor(0.1), got a tensor {{{}}}",
                                 fmt::join(arguments[1].sizes(), ", ")));
  return {.share = arguments[1].item<double>()};
}

/// The report of all ranks as numbers: rows of location, code, severity and count, and the samples and those with
/// errors.
Tensors as_tensors(const ErrorReport& report) {
  at::Tensor rows = at::empty({static_cast<int64_t>(report.counts.size()), 4}, at::kLong);
  auto values = rows.accessor<int64_t, 2>();
  for (size_t i = 0; i < report.counts.size(); ++i) {
    const ErrorReport::Count& count = report.counts[i];
    auto row = values[static_cast<int64_t>(i)];
    row[0] = count.location == ErrorLocation::name(ErrorLocation::UNKNOWN)
                 ? ErrorLocation::UNKNOWN
                 : ErrorLocation::register_path(count.location);
    row[1] = to_int(count.code);
    row[2] = to_int(count.severity);
    row[3] = count.count;
  }
  at::Tensor totals = at::empty({2}, at::kLong);
  totals[0] = report.samples;
  totals[1] = report.flagged;
  return {rows, totals};
}

}  // namespace

std::vector<HostFunction> dist_functions(const Group& group) {
  const auto agrees = [group](const Tensors& arguments) -> Tensors {
    const auto options = [&] {
      check_count("dist.agree", arguments, 1, 2);
      return options_of(arguments);
    };
    const at::Tensor bad = arguments.empty() ? at::Tensor() : arguments[0];
    const bool yes = agree_made(bad, taking_part("dist.agree", group), options);
    return {at::scalar_tensor(yes, at::kBool)};
  };
  const auto reduces_report = [group](const Tensors& arguments) -> Tensors {
    const auto own = [&] {
      check_count("dist.reduce_report", arguments, 1, 1);
      return report_of(arguments[0], {.examples = 0});
    };
    return as_tensors(reduce_made(own, taking_part("dist.reduce_report", group), {.examples = 0}));
  };
  const auto number = [](const char* name, int value) {
    return HostFunction{name, [name, value](const Tensors& arguments) -> Tensors {
                          check_count(name, arguments, 0, 0);
                          return {at::scalar_tensor(value, at::kLong)};
                        }};
  };
  return {{"dist.agree", agrees},
          {"dist.reduce_report", reduces_report},
          {"dist.all_reduce",
           [group](const Tensors& arguments) { return all_reduce(arguments, taking_part("dist.all_reduce", group)); }},
          number("dist.rank", group.rank()),
          number("dist.world_size", group.size())};
}

void define_dist(Runtime& runtime, const Group& group) {
  for (HostFunction& function : dist_functions(group)) runtime.define(function.name, std::move(function.fn));
}

}  // namespace triage
