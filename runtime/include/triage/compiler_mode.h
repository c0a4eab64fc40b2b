#pragma once
#include <triage/api.h>

#include <cstdint>
#include <string>

namespace triage {

/// How backend `fused` uses the C++ compiler of the host (TRIAGE_CXX, else `c++`). A fused loop runs without one, as a
/// tape of precompiled steps; a kernel is the same loop as machine code. Both give the same bits.
enum class CompilerMode : uint8_t {
  off,         ///< no child process, no file: tapes, and the kernels of files from `triage build`
  background,  ///< tapes at once, and kernels when they are there: from the cache on disk, or compiled by a thread
  wait,        ///< the same kernels, but the call that first needs one waits for it (up to TRIAGE_CXX_TIMEOUT)
};

/// "off", "background" or "wait"; throws ConfigError that lists them.
TRIAGE_API CompilerMode compiler_mode_from(const std::string& name);
TRIAGE_API const char* compiler_mode_name(CompilerMode mode) noexcept;

}  // namespace triage
