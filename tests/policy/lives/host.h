#pragma once
#include <triage/bundle.h>
#include <triage/runtime.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/policy/fake_script.h"
#include "tests/policy/lives/model.h"

namespace lives {

/// What the host of a policy alone, or of a bundle, does, with a Runtime and real files.
class Host {
 public:
  /// `cache`: RuntimeOptions::cache_dir; both folders outlive it.
  Host(const fake::Folder& folder, const fake::Folder& cache, const Options& options, bool is_bundle, size_t count);

  void save(const Disk& disk) const;
  /// False: it cannot be loaded.
  bool start();
  void close();
  void look();

  // False: refused with an error of triage.
  void reload() const;
  bool return_to(int number, bool pin) const;
  void unpin() const;
  bool replace(const Source& source) const;
  bool start_candidate(size_t policy, const Source& source, const Candidate& as) const;
  bool promote(size_t policy) const;
  bool end_candidate(size_t policy) const;
  bool set_param(size_t policy, double value) const;

  Answer call(size_t policy, const Call& call) const;
  /// Returns when the Runtime's thread for candidates has nothing more to do.
  void drain();

  /// What the log says of what is kept in `cache`, where it cannot be used.
  const std::string& trouble() const { return trouble_; }
  const triage::Policy& policy(size_t place) const { return policies_[place]; }
  const triage::Bundle& bundle() const { return bundle_; }
  std::filesystem::path state_file(size_t policy) const { return cache_ / ("state" + std::to_string(policy) + ".pt"); }

 private:
  std::filesystem::path file(size_t policy) const { return folder_ / (name(policy) + ".fake"); }
  static std::string name(size_t policy) { return std::string(1, static_cast<char>('a' + policy)); }

  const fake::Folder &folder_, &cache_;
  const Options options_;
  const bool is_bundle_;
  const size_t count_;
  std::optional<triage::Runtime> runtime_;
  triage::Bundle bundle_;
  std::vector<triage::Policy> policies_;
  triage::Policy idle_;
  uint64_t drained_ = 0;
  std::string trouble_;
};

}  // namespace lives
