// CUDA without its headers: triage is built once, and takes what the LibTorch at hand has loaded. The declarations here
// are those of the driver's interface (https://docs.nvidia.com/cuda/cuda-driver-api) and of NVRTC
// (https://docs.nvidia.com/cuda/nvrtc).
#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "runtime/backends/fused/gpu/accelerator.h"
#include "runtime/backends/fused/loops/gpu_text.h"

namespace triage::fused {
namespace {

using CuResult = int;
using NvrtcResult = int;
using Handle = void*;  // of a context, a module, a function, a stream, a program

constexpr int compute_capability_major = 75, compute_capability_minor = 76;  // CUdevice_attribute
constexpr unsigned cluster_dimension = 4;                                    // CUlaunchAttributeID

struct CuLaunchAttribute {
  unsigned id;
  unsigned padding;
  union {
    unsigned cluster[3];
    char bytes[64];
  };
};
struct CuLaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  Handle stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};

/// The functions that are called, by name.
struct Cuda {
  CuResult (*cuDeviceGet)(int* device, int ordinal);
  CuResult (*cuDeviceGetAttribute)(int* value, int attribute, int device);
  CuResult (*cuDevicePrimaryCtxRetain)(Handle* context, int device);
  CuResult (*cuCtxPushCurrent_v2)(Handle context);
  CuResult (*cuCtxPopCurrent_v2)(Handle* context);
  CuResult (*cuModuleLoadData)(Handle* module, const void* image);
  CuResult (*cuModuleGetFunction)(Handle* function, Handle module, const char* name);
  CuResult (*cuLaunchKernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,
                             void**, void**);
  CuResult (*cuLaunchKernelEx)(const CuLaunchConfig*, Handle, void**, void**);  // null before CUDA 11.8
  CuResult (*cuGetErrorString)(CuResult error, const char** text);
  NvrtcResult (*nvrtcCreateProgram)(Handle*, const char*, const char*, int, const char* const*, const char* const*);
  NvrtcResult (*nvrtcCompileProgram)(Handle, int, const char* const*);
  NvrtcResult (*nvrtcDestroyProgram)(Handle*);
  NvrtcResult (*nvrtcGetProgramLogSize)(Handle, size_t*);
  NvrtcResult (*nvrtcGetProgramLog)(Handle, char*);
  NvrtcResult (*nvrtcGetCUBINSize)(Handle, size_t*);
  NvrtcResult (*nvrtcGetCUBIN)(Handle, char*);
  const char* (*nvrtcGetErrorString)(NvrtcResult);
  NvrtcResult (*nvrtcVersion)(int* major, int* minor);
  Handle (*stream_of)(const c10::Stream* stream);  // cudaStream_t c10::cuda::CUDAStream::stream() const
};

/// Where LibTorch lies, with a '/'. (The address of a function may be one in the program that calls it. A table of
/// virtual functions is where it is defined.)
std::string folder_of_libtorch() {
  Dl_info info;
  const void* const table = *reinterpret_cast<const void* const*>(c10::GetAllocator(c10::kCPU));
  if (!::dladdr(table, &info) || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

/// LibTorch's own way to NVRTC and the driver, which it loads when it first needs them: what it depends on can be
/// looked up in it. And its library of streams, which it has loaded.
std::vector<Handle> open_libraries() {
  std::vector<Handle> libraries;
  for (const char* name : {"libcaffe2_nvrtc.so", "libc10_cuda.so"})
    for (const std::string& path : {folder_of_libtorch() + name, std::string(name)})
      if (Handle const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        libraries.push_back(library);
        break;
      }
  return libraries;
}

std::optional<Cuda> load() {
  const std::vector<Handle> libraries = open_libraries();
  Cuda cuda{};
  bool all = true;
  const auto find = [&](auto& function, const char* name, bool required = true) {
    for (Handle const library : libraries)
      if (!function) function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    all &= function || !required;
  };
#define FIND(name) find(cuda.name, #name)
  FIND(cuDeviceGet), FIND(cuDeviceGetAttribute), FIND(cuDevicePrimaryCtxRetain), FIND(cuCtxPushCurrent_v2);
  FIND(cuCtxPopCurrent_v2), FIND(cuModuleLoadData), FIND(cuModuleGetFunction), FIND(cuLaunchKernel);
  FIND(cuGetErrorString), FIND(nvrtcCreateProgram), FIND(nvrtcCompileProgram), FIND(nvrtcDestroyProgram);
  FIND(nvrtcGetProgramLogSize), FIND(nvrtcGetProgramLog), FIND(nvrtcGetCUBINSize), FIND(nvrtcGetCUBIN);
  FIND(nvrtcGetErrorString), FIND(nvrtcVersion);
#undef FIND
  find(cuda.cuLaunchKernelEx, "cuLaunchKernelEx", false);
  find(cuda.stream_of, "_ZNK3c104cuda10CUDAStream6streamEv");
  int major = 0, minor = 0;
  const bool takes_cpp20 = all && cuda.nvrtcVersion(&major, &minor) == 0 && major >= 12;
  return takes_cpp20 ? std::optional(cuda) : std::nullopt;
}

/// Null where something is missing.
const Cuda* cuda() {
  static const std::optional<Cuda> found = load();
  return found ? &*found : nullptr;
}

void check(CuResult result, const char* what) {
  if (result == 0) return;
  const char* text = nullptr;
  cuda()->cuGetErrorString(result, &text);
  throw std::runtime_error(fmt::format("CUDA cannot {}: {}", what, text ? text : std::to_string(result)));
}

int attribute(int which, c10::Device device) {
  int handle = 0, value = 0;
  check(cuda()->cuDeviceGet(&handle, device.index()), "find its device");
  check(cuda()->cuDeviceGetAttribute(&value, which, handle), "describe its device");
  return value;
}

/// The one that LibTorch uses on a device. Retained, and never released.
Handle context_of(c10::Device device) {
  int handle = 0;
  Handle context = nullptr;
  check(cuda()->cuDeviceGet(&handle, device.index()), "find its device");
  check(cuda()->cuDevicePrimaryCtxRetain(&context, handle), "use its device");
  return context;
}

/// While alive, a context is this thread's: LibTorch gives threads one only when they need it for its own calls.
class InContext {
 public:
  explicit InContext(Handle context) { check(cuda()->cuCtxPushCurrent_v2(context), "use its device"); }
  ~InContext() {
    Handle popped = nullptr;
    cuda()->cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
};

class CudaCode final : public GpuCode {
 public:
  CudaCode(c10::Device device, const std::string& cubin) : device_(device), context_(context_of(device)) {
    const InContext context(context_);
    Handle module = nullptr;  // never unloaded: some stream may be running it
    check(cuda()->cuModuleLoadData(&module, cubin.data()), "load a kernel");
    check(cuda()->cuModuleGetFunction(&function_, module, "triage_kernel"), "find a kernel in what it compiled");
  }

  void launch(const GpuGrid& grid, at::ArrayRef<int64_t> arguments) const override {
    c10::SmallVector<void*, 48> addresses;
    for (const int64_t& argument : arguments) addresses.push_back(const_cast<int64_t*>(&argument));
    try {
      const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device_);
      const InContext context(context_);
      if (grid.cluster && !has_no_room_.load(std::memory_order_relaxed)) {
        if (start_cluster(grid, stream, addresses.data()) == 0) return;
        has_no_room_.store(true, std::memory_order_relaxed);  // on a part of a device, say
      }
      const uint32_t shared = grid.cluster ? 1 : grid.shared;
      check(cuda()->cuLaunchKernel(function_, grid.blocks, shared, 1, grid.threads, grid.rows, 1, 0,
                                   cuda()->stream_of(&stream), addresses.data(), nullptr),
            "start a fused loop, or has failed before");
    } catch (const std::runtime_error& error) {
      throw PolicyError(error.what());
    }
  }

 private:
  CuResult start_cluster(const GpuGrid& grid, const c10::Stream& stream, void** arguments) const {
    CuLaunchAttribute attribute{cluster_dimension, 0, {{1, grid.shared, 1}}};
    const CuLaunchConfig config{
        {grid.blocks, grid.shared, 1}, {grid.threads, grid.rows, 1}, 0, cuda()->stream_of(&stream), &attribute, 1};
    return cuda()->cuLaunchKernelEx(&config, function_, arguments, nullptr);
  }

  const c10::Device device_;
  Handle const context_;
  Handle function_ = nullptr;
  mutable std::atomic<bool> has_no_room_{false};  // for clusters: a row is one block's then, with the same bits
};

/// A program of NVRTC.
class NvrtcProgram {
 public:
  explicit NvrtcProgram(const std::string& text) {
    // cuda_source() has what loops take from these.
    static constexpr std::array<const char*, 3> names{"bit", "cstdint", "cstring"}, texts{"", "", ""};
    check(cuda()->nvrtcCreateProgram(&program_, text.c_str(), "triage.cu", names.size(), texts.data(), names.data()));
  }
  ~NvrtcProgram() { cuda()->nvrtcDestroyProgram(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  std::string compiled(const std::vector<std::string>& options) {
    std::vector<const char*> list;
    for (const std::string& option : options) list.push_back(option.c_str());
    const NvrtcResult result = cuda()->nvrtcCompileProgram(program_, static_cast<int>(list.size()), list.data());
    if (result != 0) throw std::runtime_error(fmt::format("NVRTC: {}\n{}", cuda()->nvrtcGetErrorString(result), log()));
    size_t size = 0;
    check(cuda()->nvrtcGetCUBINSize(program_, &size));
    std::string cubin(size, '\0');
    check(cuda()->nvrtcGetCUBIN(program_, cubin.data()));
    return cubin;
  }

 private:
  static void check(NvrtcResult result) {
    if (result != 0) throw std::runtime_error(fmt::format("NVRTC: {}", cuda()->nvrtcGetErrorString(result)));
  }
  std::string log() const {
    size_t size = 0;
    check(cuda()->nvrtcGetProgramLogSize(program_, &size));
    std::string text(size, '\0');
    check(cuda()->nvrtcGetProgramLog(program_, text.data()));
    return text;
  }
  Handle program_ = nullptr;
};

class CudaAccelerator final : public Accelerator {
 public:
  bool has_clusters(c10::Device device) const override {
    return cuda()->cuLaunchKernelEx && attribute(compute_capability_major, device) >= 9;
  }

  std::unique_ptr<const GpuCode> compile(c10::Device device, const std::string& source,
                                         const std::string& /*parameters*/) const override {
    const int major = attribute(compute_capability_major, device), minor = attribute(compute_capability_minor, device);
    NvrtcProgram program(cuda_source() + gpu_source() + source);
    // Without contraction, for the bits (support/polynomial.h). Numbers that are no floats, and attributes of GCC, are
    // meant.
    const std::string cubin =
        program.compiled({fmt::format("--gpu-architecture=sm_{}{}", major, minor), "--std=c++20", "--fmad=false",
                          "--device-as-default-execution-space", "-diag-suppress", "1046,1097,177"});
    return std::make_unique<CudaCode>(device, cubin);
  }
};

}  // namespace

const Accelerator* cuda_accelerator() {
  static const auto& accelerator = *new CudaAccelerator;
  return cuda() ? &accelerator : nullptr;
}

}  // namespace triage::fused
