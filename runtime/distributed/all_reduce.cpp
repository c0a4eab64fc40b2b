#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/distributed/exchange.h"
#include "runtime/files/checksum.h"
#include "runtime/messages/boundary.h"

namespace triage {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The few dtypes that every transport adds.
constexpr at::ScalarType added_dtypes[] = {at::kFloat, at::kDouble, at::kLong};

at::ScalarType added_as(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kDouble) return at::kDouble;
  return tensor.is_floating_point() ? at::kFloat : at::kLong;
}

/// "Float [3, 2], Long []". Throws InputError for what has no sum.
std::string forms_of(at::ArrayRef<at::Tensor> tensors) {
  std::vector<std::string> forms;
  for (const at::Tensor& tensor : tensors) {
    const bool is_plain = tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized();
    if (!is_plain || tensor.is_complex() || tensor.scalar_type() == at::kBool)
      throw InputError(fmt::format("expected dense tensors of floats or integers, got {} as tensor {}",
                                   tensor.defined() ? tensor.toString() : "an undefined one", forms.size() + 1));
    forms.push_back(fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", ")));
  }
  if (forms.empty()) throw InputError("expected at least one tensor, got none");
  return fmt::format("{}", fmt::join(forms, ", "));
}

/// Throws on all ranks unless all give tensors of the same forms: a sum of others would be none, or hang.
void check_same_forms(Exchange& exchange, const std::string& own) {
  const auto given = exchange.give({static_cast<int64_t>(files::checksum(own)), static_cast<int64_t>(own.size())});
  std::vector<int64_t> lengths;
  for (const auto& one : given) lengths.push_back(one[1]);
  for (size_t other = 1; other < given.size(); ++other) {
    if (given[other] == given[0]) continue;
    const std::vector<std::string> forms = exchange.gather(own, lengths);
    throw DistributedError(fmt::format("{}: the ranks give different tensors: rank 0 gives {}; rank {} gives {}",
                                       exchange.who(), forms[0], other, forms[other]));
  }
}

/// Writes into `sums` those that are added as this dtype.
void add_up(Exchange& exchange, at::ArrayRef<at::Tensor> tensors, at::ScalarType dtype, Tensors& sums) {
  Tensors flat;
  std::vector<size_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (added_as(tensors[i]) != dtype) continue;
    flat.push_back(tensors[i].to(at::kCPU, dtype).reshape({-1}));
    places.push_back(i);
  }
  if (places.empty()) return;
  at::Tensor all = at::cat(flat);
  exchange.sum(all);
  int64_t begin = 0;
  for (const size_t i : places) {
    const at::Tensor sum = all.narrow(0, begin, tensors[i].numel()).reshape(tensors[i].sizes());
    sums[i] = sum.to(tensors[i].options(), /*non_blocking=*/false, /*copy=*/true);
    begin += tensors[i].numel();
  }
}

}  // namespace

Tensors all_reduce(at::ArrayRef<at::Tensor> tensors, const Group& group) {
  return messages::errors_only([&] {
    const at::NoGradGuard no_grad;
    Exchange exchange(group, Exchange::Operation::all_reduce);
    check_same_forms(exchange, exchange.own([&] { return forms_of(tensors); }));
    Tensors sums(tensors.size());
    try {
      for (const at::ScalarType dtype : added_dtypes) add_up(exchange, tensors, dtype, sums);
    } catch (const DistributedError&) {
      throw;
    } catch (const std::exception& error) {  // no memory: the others wait for what this rank did not send
      exchange.fail(fmt::format("{} ended on this rank before it had sent its part: {}", exchange.who(),
                                Exchange::text_of(error)));
    }
    return sums;
  });
}

}  // namespace triage
