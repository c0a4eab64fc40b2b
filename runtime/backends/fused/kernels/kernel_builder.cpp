#include <fmt/format.h>
#include <triage/version.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/backends/fused/kernels/build_directory.h"
#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/backends/fused/kernels/system_compiler.h"
#include "runtime/messages/boundary.h"

namespace triage {
namespace {

const std::atomic<bool> never{false};  // a build is not given up

/// As a string literal of C++, whatever it holds.
std::string literal(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      result += "\\n\"\n\"";
    else if (byte < 0x20 || byte > 0x7E || c == '"' || c == '\\' || c == '?')
      result += fmt::format("\\{:03o}", byte);
    else
      result += c;
  }
  return result + "\"";
}

/// Macros that a compiler defines when its code may use a feature, with the name of the feature in /proc/cpuinfo.
constexpr std::pair<const char*, const char*> features[] = {
    {"__SSE3__", "pni"},
    {"__SSSE3__", "ssse3"},
    {"__SSE4_1__", "sse4_1"},
    {"__SSE4_2__", "sse4_2"},
    {"__SSE4A__", "sse4a"},
    {"__POPCNT__", "popcnt"},
    {"__LZCNT__", "abm"},
    {"__MOVBE__", "movbe"},
    {"__BMI__", "bmi1"},
    {"__BMI2__", "bmi2"},
    {"__ADX__", "adx"},
    {"__F16C__", "f16c"},
    {"__FMA__", "fma"},
    {"__FMA4__", "fma4"},
    {"__XOP__", "xop"},
    {"__TBM__", "tbm"},
    {"__AVX__", "avx"},
    {"__AVX2__", "avx2"},
    {"__AVXVNNI__", "avx_vnni"},
    {"__AVX512F__", "avx512f"},
    {"__AVX512CD__", "avx512cd"},
    {"__AVX512BW__", "avx512bw"},
    {"__AVX512DQ__", "avx512dq"},
    {"__AVX512VL__", "avx512vl"},
    {"__AVX512IFMA__", "avx512ifma"},
    {"__AVX512VBMI__", "avx512vbmi"},
    {"__AVX512VBMI2__", "avx512_vbmi2"},
    {"__AVX512VNNI__", "avx512_vnni"},
    {"__AVX512BITALG__", "avx512_bitalg"},
    {"__AVX512VPOPCNTDQ__", "avx512_vpopcntdq"},
    {"__AVX512BF16__", "avx512_bf16"},
    {"__AVX512FP16__", "avx512_fp16"},
    {"__GFNI__", "gfni"},
    {"__ARM_FEATURE_ATOMICS", "atomics"},
    {"__ARM_FEATURE_DOTPROD", "asimddp"},
    {"__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "asimdhp"},
    {"__ARM_FEATURE_QRDMX", "asimdrdm"},
    {"__ARM_FEATURE_COMPLEX", "fcma"},
    {"__ARM_FEATURE_BF16", "bf16"},
    {"__ARM_FEATURE_MATMUL_INT8", "i8mm"},
    {"__ARM_FEATURE_SVE", "sve"},
    {"__ARM_FEATURE_SVE2", "sve2"},
};

std::vector<std::string> features_of(const std::string& macros) {
  std::vector<std::string> found;
  for (const auto& [macro, feature] : features)
    if (macros.find(fmt::format("#define {} ", macro)) != std::string::npos) found.push_back(feature);
  return found;
}

std::string architecture_of(const std::string& macros) {
  if (macros.find("#define __x86_64__ ") != std::string::npos) return "x86_64";
  return macros.find("#define __aarch64__ ") != std::string::npos ? "aarch64" : "unknown";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string macros_for(const fused::SystemCompiler& compiler, const std::string& cpu) {
  const bool plain = !cpu.empty() && std::all_of(cpu.begin(), cpu.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '.' || c == '_' || c == '+';
  });
  try {
    if (plain) return compiler.macros(cpu);
  } catch (const std::runtime_error& error) {
    throw InputError(
        fmt::format("there is no processor \"{}\" to build kernels for: {}", cpu, first_line(error.what())));
  }
  throw InputError(
      fmt::format("there is no processor \"{}\" to build kernels for: its name is what the compiler's "
                  "-march takes, such as native or x86-64-v3",
                  cpu));
}

std::string compiled(const fused::SystemCompiler& compiler, const std::set<std::string>& sources,
                     const std::string& cpu, KernelManifest& manifest) {
  const fused::BuildDirectory build_directory;
  std::vector<std::string> objects;
  std::string texts;
  for (const std::string& source : sources) {
    const std::string hash = fused::hash_of(source);
    manifest.kernels.push_back(hash);
    objects.push_back(build_directory / fmt::format("{}.o", objects.size()));
    compiler.compile_object(source, objects.back(), cpu, {"-Dtriage_rows=" + fused::rows_symbol(hash)}, never);
    texts += fmt::format("extern \"C\" __attribute__((visibility(\"default\"))) const char {}[] = {};\n",
                         fused::source_symbol(hash), literal(source));
  }
  objects.push_back(build_directory / "sources.o");
  compiler.compile_object(texts, objects.back(), cpu, {}, never);
  const std::string library = build_directory / "kernels.so";
  compiler.link(objects, library, never);
  std::ifstream file(library, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<std::string> fused::native_features() {
  const std::vector<std::string> here = processor_features();
  std::vector<std::string> used;
  for (const auto& [macro, feature] : features)
    if (std::find(here.begin(), here.end(), feature) != here.end()) used.emplace_back(feature);
  return used;
}

KernelBuilder::KernelBuilder() : sources_(std::make_unique<std::set<std::string>>()) { fused::note_kernels(*sources_); }

KernelBuilder::~KernelBuilder() { fused::stop_noting(*sources_); }

size_t KernelBuilder::size() const { return fused::noted(*sources_).size(); }

std::string KernelBuilder::build(const std::string& name, const std::string& cpu) const {
  return messages::errors_only([&] {
    const std::set<std::string> sources = fused::noted(*sources_);
    if (sources.empty())
      throw Error(fmt::format(
          "there is nothing to build for {}: no part of it became a fused kernel, ATen computes it all", name));
    try {
      const fused::SystemCompiler& compiler = fused::SystemCompiler::instance(never);
      const std::string macros = macros_for(compiler, cpu);
      KernelManifest manifest{name,
                              TRIAGE_VERSION,
                              fused::kernel_abi,
                              first_line(compiler.identity()),
                              architecture_of(macros),
                              features_of(macros),
                              {}};
      const std::string object = compiled(compiler, sources, cpu, manifest);
      return fused::kernel_file(object, manifest);
    } catch (const Error&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw Error(fmt::format("cannot build the kernels of {}: {}", name, error.what()));
    }
  });
}

}  // namespace triage
