#include "tests/gpu_on_host.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <stdexcept>

#include "runtime/backends/fused/emit.h"
#include "runtime/backends/fused/kernels/build_directory.h"
#include "runtime/backends/fused/kernels/system_compiler.h"
#include "runtime/backends/fused/loops/gpu_text.h"

namespace triage::test {
namespace {

/// What support/gpu.h asks of a device, for one thread.
constexpr const char* device_of_one_thread = R"(
#include <cstdint>
struct Index { unsigned x, y; };
static thread_local Index threadIdx{0, 0}, blockIdx{0, 0}, blockDim{1, 1}, gridDim{1, 1};
#define TRIAGE_KERNEL static void
#define TRIAGE_SHARED static thread_local
namespace triage::fused {
inline constexpr int warp_threads = 1;
inline void wait_for_warp() {}
inline void wait_for_block() {}
inline void wait_for_cluster() {}
inline uint64_t other_thread(uint64_t word, int) { return word; }
inline uint64_t shared_of(const uint64_t* word, int) { return *word; }
template <class T>
inline T load(const T* address) {
  return *address;
}
}
)";

/// A function such as kernels of the CPU are, whose `in` are the arguments.
std::string launcher(const std::string& parameters) {
  std::string list;
  for (size_t i = 0; i < parameters.size(); ++i)
    list += fmt::format("{}{}arguments[{}]", i == 0 ? "" : ", ",
                        parameters[i] == 'p'   ? "(const void*)"
                        : parameters[i] == 'o' ? "(void*)"
                                               : "",
                        i);
  return fmt::format(R"(
struct Call {{ const int64_t* arguments; }};
extern "C" __attribute__((visibility("default"))) void triage_rows(const Call* call, int64_t, int64_t rows) {{
  const int64_t* const arguments = call->arguments;
  for (blockIdx.x = 0; blockIdx.x < rows; ++blockIdx.x) triage_kernel({});
}}
)",
                     list);
}

class Code final : public fused::GpuCode {
 public:
  explicit Code(fused::RowsFunction function) : function_(function) {}
  void launch(const fused::GpuGrid& /*grid*/, at::ArrayRef<int64_t> arguments) const override {
    struct {
      const int64_t* arguments;
    } const call{arguments.data()};
    function_(reinterpret_cast<const fused::Call*>(&call), 0, arguments[arguments.size() - 2]);
  }

 private:
  fused::RowsFunction function_;
};

class OnHost final : public fused::Accelerator {
 public:
  bool has_clusters(c10::Device) const override { return false; }
  std::unique_ptr<const fused::GpuCode> compile(c10::Device, const std::string& source,
                                                const std::string& parameters) const override {
    static const std::atomic<bool> give_up{false};
    const fused::BuildDirectory folder;
    const std::string object = folder / "kernel.so";
    fused::SystemCompiler::instance(give_up).compile(
        device_of_one_thread + fused::gpu_source() + source + launcher(parameters), object, {}, give_up);
    void* const library = ::dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    return std::make_unique<Code>(reinterpret_cast<fused::RowsFunction>(::dlsym(library, "triage_rows")));
  }
};

}  // namespace

const fused::Accelerator& gpu_on_host() {
  static const OnHost accelerator;
  return accelerator;
}

}  // namespace triage::test
