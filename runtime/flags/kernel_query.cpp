// CPU kernels that ask about records: one pass over the words.
#include <ATen/ATen.h>
#include <runtime/flags/rows.h>

namespace triage::flags::cpu {
namespace {

template <class Word>
constexpr Word each(uint64_t slot) {
  return static_cast<Word>(EACH_SLOT * slot);
}

// Calls `row(const Word* words, int64_t count)` for each record and stores what it returns. `words` is a compile-time 4 for
// the default layout, so that the compiler unrolls it.
template <class Result, class Word, class Row>
void ask_rows(const Word* words, int64_t count, int64_t width, Result* out, Row row) {
  at::parallel_for(0, count, rows_per_task(width * static_cast<int64_t>(sizeof(Word))),
                   [&](int64_t begin, int64_t end) {
                     if (width == 4) {
                       for (int64_t i = begin; i < end; ++i) out[i] = row(words + i * 4, int64_t{4});
                     } else {
                       for (int64_t i = begin; i < end; ++i) out[i] = row(words + i * width, width);
                     }
                   });
}

template <class Result, class Row>
Tensor ask(const Tensor& flags, Row row) {
  const auto from = flags.contiguous();
  auto result = at::empty({from.size(0)}, at::TensorOptions(c10::CppTypeToScalarType<Result>::value));
  auto* out = static_cast<Result*>(result.data_ptr());
  if (check::slots_per_word(from.scalar_type()) == 4) {
    ask_rows(static_cast<const uint64_t*>(from.data_ptr()), from.size(0), from.size(1), out, row);
  } else {
    ask_rows(static_cast<const uint32_t*>(from.data_ptr()), from.size(0), from.size(1), out, row);
  }
  return result;
}

// Any record with a lane for which `lanes(word)` is not zero. `lanes(0)` is zero: a record without errors costs one look.
template <class Lanes>
Tensor ask_any(const Tensor& flags, Lanes lanes) {
  return ask<bool>(flags, [lanes](const auto* words, int64_t count) {
    auto all = words[0];
    for (int64_t i = 1; i < count; ++i) all |= words[i];
    if (!all) return false;
    auto found = lanes(words[0]);
    for (int64_t i = 1; i < count; ++i) found |= lanes(words[i]);
    return found != 0;
  });
}

template <class Word>
bool any_live(const Word* words, int64_t count) {
  Word all = 0;
#pragma omp simd reduction(| : all)
  for (int64_t i = 0; i < count; ++i) all |= words[i];
  return (all & each<Word>(SEVERITY_MASK)) != 0;
}

bool any_error(const Tensor& flags) {
  const auto from = flags.contiguous();
  return check::slots_per_word(from.scalar_type()) == 4
             ? any_live(static_cast<const uint64_t*>(from.data_ptr()), from.numel())
             : any_live(static_cast<const uint32_t*>(from.data_ptr()), from.numel());
}

Tensor scalar(bool value) {
  auto result = at::empty({}, at::TensorOptions(at::kBool));
  *static_cast<bool*>(result.data_ptr()) = value;
  return result;
}

template <class Result>
Tensor slot_field(const Tensor& flags, int64_t index, int64_t shift, int64_t mask) {
  const auto from = flags.contiguous();
  const Rows rows(from);
  auto result = at::empty({rows.count}, at::TensorOptions(c10::CppTypeToScalarType<Result>::value));
  auto* out = static_cast<Result*>(result.data_ptr());
  for (int64_t i = 0; i < rows.count; ++i) out[i] = static_cast<Result>(rows[i][index] >> shift & mask);
  return result;
}

template <class Word>
Word lanes_with_code(Word word, int64_t code) {
  return zero_lanes(static_cast<Word>((word & each<Word>(CODE_MASK)) ^
                                      each<Word>(static_cast<uint64_t>(code << CODE_SHIFT)))) &
         live_lanes(word);
}

}  // namespace

Tensor is_err(const Tensor& flags) {
  check::flags("is_err", flags);
  return ask_any(flags, [](auto word) { return live_lanes(word); });
}

Tensor is_ok(const Tensor& flags) {
  check::flags("is_ok", flags);
  return ask<bool>(flags, [](const auto* words, int64_t count) {
    auto all = words[0];
    for (int64_t i = 1; i < count; ++i) all |= words[i];
    return live_lanes(all) == 0;
  });
}

Tensor has_critical(const Tensor& flags) {
  check::flags("has_critical", flags);
  return ask_any(flags, [](auto word) { return word & word >> 1 & each<decltype(word)>(1); });
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
  return ask<int32_t>(flags, [](const auto* words, int64_t count) {
    uint64_t lanes = 0;  // a lane counts to 65,535 words; there are at most 16,384
    for (int64_t i = 0; i < count; ++i) lanes += live_lanes(words[i]);
    return static_cast<int32_t>((lanes & SLOT_MASK) + (lanes >> 16 & SLOT_MASK) + (lanes >> 32 & SLOT_MASK) +
                                (lanes >> 48));
  });
}

Tensor max_severity(const Tensor& flags) {
  check::flags("max_severity", flags);
  return ask<int64_t>(flags, [](const auto* words, int64_t count) -> int64_t {
    using Word = std::decay_t<decltype(*words)>;
    Word any = 0;
    Word both = 0;
    for (int64_t i = 0; i < count; ++i) {
      any |= words[i];
      both |= words[i] & words[i] >> 1;
    }
    if (!any) return err::ok;
    if (both & each<Word>(1)) return err::critical;
    if (any & each<Word>(err::error)) return err::error;
    return (any & each<Word>(err::warn)) != 0;
  });
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
  check::flags("has_code", flags);
  check::code("has_code", code);
  return ask_any(flags, [code](auto word) { return lanes_with_code(word, code); });
}

Tensor has_domain(const Tensor& flags, int64_t domain) {
  check::flags("has_domain", flags);
  check::domain("has_domain", domain);
  return ask_any(flags, [domain](auto word) {
    using Word = decltype(word);
    constexpr auto mask = each<Word>(0xC << CODE_SHIFT);
    return zero_lanes(
               static_cast<Word>((word & mask) ^ each<Word>(static_cast<uint64_t>(domain << (CODE_SHIFT + 2))))) &
           live_lanes(word);
  });
}

Tensor match(const Tensor& flags, int64_t codes, int64_t min_severity) {
  check::flags("match", flags);
  check::codes("match", codes, min_severity);
  if (codes == 0xFFFF && min_severity <= 1) return is_err(flags);
  return ask<bool>(flags, [codes, min_severity](const auto* words, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      for (auto word = words[i]; word; word = static_cast<std::decay_t<decltype(word)>>(uint64_t{word} >> SLOT_BITS)) {
        const auto severity = static_cast<int64_t>(word & SEVERITY_MASK);
        if (severity && severity >= min_severity && codes >> (word >> CODE_SHIFT & 0xF) & 1) return true;
      }
    }
    return false;
  });
}

}  // namespace triage::flags::cpu
