#pragma once
#include <memory>
#include <vector>

#include "runtime/policy/releases/release.h"

namespace triage::policy {

/// The releases that are kept for a rollback. Who uses it holds the mutexes of its Releases and of their policies.
class ReleaseHistory {
 public:
  virtual ~ReleaseHistory() = default;
  /// Null where it is not kept.
  virtual std::shared_ptr<Release> find(int number) const = 0;
  virtual std::vector<std::shared_ptr<Release>> kept() const = 0;  // oldest first
  /// Of the one that went live last for the first time; it may have been taken back.
  virtual int newest() const = 0;
  /// What is live again where `asked.version` has failed, which `asked.before` answered for; null where there is none.
  virtual std::shared_ptr<Release> find_before(const Lineup& asked, const Lineup& now) const = 0;
  /// `release` is about to go live for the first time, and gets its number. Where that throws, nothing has changed.
  virtual void add(const std::shared_ptr<Release>& release) = 0;
  virtual void note_live(const std::shared_ptr<Release>& release) noexcept = 0;
};

/// Of a policy that stands alone: its line keeps the versions.
class VersionHistory final : public ReleaseHistory {
 public:
  explicit VersionHistory(const VersionLine& line) : line_(line) {}
  std::shared_ptr<Release> find(int number) const override;
  std::vector<std::shared_ptr<Release>> kept() const override;
  int newest() const override { return line_.newest_live(); }
  std::shared_ptr<Release> find_before(const Lineup& asked, const Lineup& now) const override;
  void add(const std::shared_ptr<Release>& release) override;
  void note_live(const std::shared_ptr<Release>& /*release*/) noexcept override {}

 private:
  const VersionLine& line_;
};

/// Of a bundle.
class BundleHistory final : public ReleaseHistory {
 public:
  explicit BundleHistory(RuntimeCore& runtime) : runtime_(runtime) {}
  std::shared_ptr<Release> find(int number) const override;
  std::vector<std::shared_ptr<Release>> kept() const override { return kept_; }
  int newest() const override { return next_number_ - 1; }
  std::shared_ptr<Release> find_before(const Lineup& asked, const Lineup& now) const override;
  void add(const std::shared_ptr<Release>& release) override;
  void note_live(const std::shared_ptr<Release>& release) noexcept override;

 private:
  using Kept = std::vector<std::shared_ptr<Release>>;
  Kept::iterator find_oldest(Kept& kept) const;

  RuntimeCore& runtime_;
  Kept kept_;  // oldest first; the live one is among them
  std::shared_ptr<Release> live_;
  std::weak_ptr<Release> live_before_;  // may no longer be kept
  int next_number_ = 1;
};

}  // namespace triage::policy
