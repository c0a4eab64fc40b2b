#pragma once
#include <functional>
#include <string>

/// Which library computes LibTorch's matrix products. A fresh Debian has the reference implementation, which computes
/// one number at a time: on one core it was 14 times slower than OpenBLAS (8 against 115 GFLOP/s on AVX-512).
namespace triage::cli {

struct Blas {
  std::string name;  // "OpenBLAS", "MKL", "the reference BLAS", ...
  std::string file =
      {};  // what the loader's link leads to; of MKL in LibTorch's own library, that one; empty: there is none
  bool slow = false;        // the reference implementation, or none
  bool known = true;        // else `name` is no more than the file's
  std::string config = {};  // what OpenBLAS says of itself
  enum class Threads { unknown, one, own, openmp } threads = Threads::unknown;  // of OpenBLAS
};

/// Of the library in `file` (the real one, no link), which has those symbols. It runs nothing.
Blas blas_of(const std::string& file, const std::function<bool(const char*)>& has_symbol);

/// Of this process.
Blas loaded_blas();

/// The package that makes LibTorch's products fast on Debian. Its threads are OpenMP's, as LibTorch's are, so that
/// `at::set_num_threads` and OMP_NUM_THREADS count for it. libopenblas0-pthread has threads of its own.
constexpr const char* fast_blas_package = "libopenblas0-openmp";

/// What to do about a slow one, in one sentence without a full stop; empty where it is not slow.
std::string slow_blas_advice(const Blas& blas);

/// Whether LibTorch calls BLAS in this operator ("aten::addmm"), on the CPU.
bool calls_blas(const std::string& aten_operator);

}  // namespace triage::cli
