#include "tests/fuzz/faulty_operators.h"

#include <ATen/ATen.h>
#include <torch/library.h>

namespace triage::fuzz {
namespace {

/// What the compiler may not see through.
template <typename T>
T opaque(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

at::Tensor hands_back(const at::Tensor& self) { return self; }

at::Tensor copies(const at::Tensor& self) { return self.clone(); }

at::Tensor sound(const at::Tensor& self) { return self.clone(); }

at::Tensor crashes(const at::Tensor& self) {
  *opaque(reinterpret_cast<volatile int*>(16)) = 1;
  return self;
}

at::Tensor divides(const at::Tensor& self) { return at::full({opaque(1) / opaque(0)}, 1); }

/// Reads one element too many.
at::Tensor reads_beyond(const at::Tensor& self) {
  const at::Tensor copy = at::zeros({1024}, at::kFloat);
  return at::full({1}, opaque(copy.data_ptr<float>())[1024]);
}

at::Tensor writes_beside(const at::Tensor& self) {
  at::Tensor odd = at::zeros({3}, at::kByte);
  opaque(odd.data_ptr<uint8_t>())[4] = 1;
  return odd;
}

at::Tensor uninitialised(const at::Tensor& self) { return at::empty({3}, at::kFloat); }

at::Tensor writes_to_input(const at::Tensor& self) {
  if (self.numel() > 0 && self.is_contiguous()) ++*static_cast<unsigned char*>(self.data_ptr());
  return self.clone();
}

at::Tensor hangs(const at::Tensor& self) {
  while (opaque(1) != 0) {
  }
  return self;
}

at::Tensor allocates(const at::Tensor& self) { return at::zeros({8 << 20}, at::kByte).narrow(0, 0, 1).clone(); }

at::Tensor throws_a_number(const at::Tensor& self) { throw 5; }

at::Tensor tells_memory(const at::Tensor& self) {
  TORCH_CHECK(false, "the first byte is ",
              static_cast<int>(*static_cast<unsigned char*>(at::empty({3}, at::kByte).data_ptr())));
  return self;
}

TORCH_LIBRARY(triage_fuzz, m) {
  for (const char* name : {"sound", "crashes", "divides", "reads_beyond", "writes_beside", "uninitialised",
                           "writes_to_input", "hangs", "allocates", "throws_a_number", "tells_memory", "hands_back"})
    m.def((std::string(name) + "(Tensor self) -> Tensor").c_str());
  m.def("copies(Tensor(a) self) -> Tensor(a)");
}

TORCH_LIBRARY_IMPL(triage_fuzz, CompositeExplicitAutograd, m) {
  m.impl("sound", sound);
  m.impl("crashes", crashes);
  m.impl("divides", divides);
  m.impl("reads_beyond", reads_beyond);
  m.impl("writes_beside", writes_beside);
  m.impl("uninitialised", uninitialised);
  m.impl("writes_to_input", writes_to_input);
  m.impl("hangs", hangs);
  m.impl("allocates", allocates);
  m.impl("throws_a_number", throws_a_number);
  m.impl("tells_memory", tells_memory);
  m.impl("hands_back", hands_back);
  m.impl("copies", copies);
}

}  // namespace

Target faulty_target(const std::string& name, int64_t bytes) {
  const std::string qualified = "triage_fuzz::" + name;
  const auto bound = [bytes](Arguments arguments) {  // a copy of what is given, however far that is expanded
    return bytes + static_cast<int64_t>(arguments[0].toTensor().nbytes());
  };
  return {qualified, c10::Dispatcher::singleton().findSchemaOrThrow(qualified.c_str(), ""),
          [](Arguments) { return std::nullopt; }, bound, [](Arguments) { return int64_t{1000}; }};
}

}  // namespace triage::fuzz
