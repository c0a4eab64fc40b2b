#include "runtime/policy/releases/release.h"

#include <algorithm>

namespace triage::policy {
namespace {

template <class Holds>
bool any_part(const Release& release, const Holds& holds) {
  return std::any_of(release.parts.begin(), release.parts.end(), [&](const auto& part) { return holds(*part.second); });
}

}  // namespace

bool Release::on_trial() const {
  return any_part(*this, [](const PolicyVersion& part) { return part.trial.on(); });
}

bool Release::taken_back() const {
  return any_part(*this, [](const PolicyVersion& part) { return part.taken_back.load(); });
}

bool Release::untried() const {
  return any_part(*this, [](const PolicyVersion& part) { return part.trial.on() && !part.trial.tried(); });
}

std::shared_ptr<Release> release_of(std::shared_ptr<PolicyVersion> version) {
  auto release = std::make_shared<Release>();
  release->number = version->number;
  release->contents = version->contents;
  release->parts.emplace("", std::move(version));
  return release;
}

}  // namespace triage::policy
