// CPU kernels that ask about records: one pass over the words.
#include <ATen/ATen.h>
#include <runtime/flags/questions.h>
#include <runtime/flags/rows.h>

#include <atomic>

namespace triage::flags::cpu {
namespace {

template <class Answer>
Tensor answers_for(const Tensor& flags) {
  return new_tensor({flags.size(0)}, c10::CppTypeToScalarType<Answer>::value);
}

template <class Answer, class Question>
Tensor ask(const Tensor& flags, const Question& question) {
  const auto from = flags.expect_contiguous();
  auto result = answers_for<Answer>(*from);
  const Rows rows(*from);
  const AskRecords<Question, Answer> loop{question};
  auto* out = static_cast<Answer*>(result.data_ptr());
  const auto* slots = static_cast<const uint16_t*>(rows.data);
  in_parallel(rows.count, rows.bytes(),
              [&](int64_t begin, int64_t end) { on_this_machine(loop, slots, rows.width, begin, end, out); });
  return result;
}

// Ends at the first stretch with an error in it.
bool any_error(const Tensor& flags) {
  const auto from = flags.expect_contiguous();
  const Rows rows(*from);
  std::atomic<bool> found{false};
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    const int64_t stretch = rows_in_stretch(rows);
    for (int64_t first = begin; first < end && !found.load(std::memory_order_relaxed); first += stretch) {
      if (any_live(rows, first, std::min(first + stretch, end))) found.store(true, std::memory_order_relaxed);
    }
  });
  return found.load();
}

Tensor scalar(bool value) {
  auto result = new_tensor({}, at::kBool);
  *static_cast<bool*>(result.data_ptr()) = value;
  return result;
}

template <class Answer>
Tensor slot_field(const Tensor& flags, int64_t index, int64_t shift, int64_t mask) {
  const auto from = flags.expect_contiguous();
  const Rows rows(*from);
  auto result = answers_for<Answer>(*from);
  auto* out = static_cast<Answer*>(result.data_ptr());
  in_parallel(rows.count, rows.bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) out[row] = static_cast<Answer>(rows[row][index] >> shift & mask);
  });
  return result;
}

}  // namespace

Tensor is_err(const Tensor& flags) {
  check::flags("is_err", flags);
  return ask<bool>(flags, IsErr{});
}

Tensor is_ok(const Tensor& flags) {
  check::flags("is_ok", flags);
  return ask<bool>(flags, IsOk{});
}

Tensor has_critical(const Tensor& flags) {
  check::flags("has_critical", flags);
  return ask<bool>(flags, HasCritical{});
}

Tensor all_ok(const Tensor& flags) {
  check::flags("all_ok", flags);
  return scalar(!any_error(flags));
}

Tensor any_err(const Tensor& flags) {
  check::flags("any_err", flags);
  return scalar(any_error(flags));
}

Tensor count_errors(const Tensor& flags) {
  check::flags("count_errors", flags);
  return ask<int32_t>(flags, CountErrors{});
}

Tensor max_severity(const Tensor& flags) {
  check::flags("max_severity", flags);
  return ask<int64_t>(flags, MaxSeverity{});
}

Tensor get_first_code(const Tensor& flags) {
  check::flags("get_first_code", flags);
  return slot_field<int32_t>(flags, 0, CODE_SHIFT, 0xF);
}

Tensor get_first_location(const Tensor& flags) {
  check::flags("get_first_location", flags);
  return slot_field<int32_t>(flags, 0, LOCATION_SHIFT, 0x3FF);
}

Tensor get_first_severity(const Tensor& flags) {
  check::flags("get_first_severity", flags);
  return slot_field<int32_t>(flags, 0, 0, SEVERITY_MASK);
}

Tensor get_slot(const Tensor& flags, int64_t index) {
  check::slot("get_slot", flags, index);
  return slot_field<int64_t>(flags, index, 0, SLOT_MASK);
}

Tensor has_code(const Tensor& flags, int64_t code) {
  check::code("has_code", flags, code);
  return ask<bool>(flags, HasBits(CODE_IN_SLOT, code << CODE_SHIFT));
}

Tensor has_domain(const Tensor& flags, int64_t domain) {
  check::domain("has_domain", flags, domain);
  return ask<bool>(flags, HasBits(0xC << CODE_SHIFT, domain << (CODE_SHIFT + 2)));
}

Tensor match(const Tensor& flags, int64_t codes, int64_t min_severity) {
  check::codes("match", flags, codes, min_severity);
  if (codes == 0xFFFF && min_severity <= 1) return is_err(flags);
  return ask<bool>(flags, Matches{codes, min_severity});
}

}  // namespace triage::flags::cpu
