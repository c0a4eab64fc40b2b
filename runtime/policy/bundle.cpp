#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/bundle.h>

#include "runtime/messages/boundary.h"
#include "runtime/policy/releases/releases.h"

namespace triage {

using messages::errors_only;

namespace {

BundleVersion info_of(const policy::Release& release) {
  BundleVersion info;
  info.number = release.number;
  info.version = release.label;
  info.sha256 = release.sha256;
  info.since = release.since;
  info.on_trial = release.on_trial();
  info.taken_back = release.taken_back();
  for (const auto& [name, part] : release.parts) info.policies.emplace_back(name, part->number);
  return info;
}

}  // namespace

policy::Releases& Bundle::core() const {
  if (!core_) throw InputError("this triage::Bundle holds no bundle; get one from Runtime::load_bundle");
  return *core_;
}

const std::string& Bundle::name() const { return core().log().name(); }

Policy Bundle::policy(std::string_view name) const {
  if (policy::PolicyCore* const found = core().find(std::string(name))) return Policy({core_, found});
  throw InputError(
      fmt::format("bundle '{}' has no policy '{}'; it has {}", this->name(), name, fmt::join(policies(), ", ")));
}

std::vector<std::string> Bundle::policies() const {
  std::vector<std::string> names;
  for (const auto& [name, policy] : core().policies()) names.push_back(name);
  return names;
}

BundleVersion Bundle::version() const {
  return errors_only([&] {
    return core().look_at([&](const policy::Releases::View& now) {
      BundleVersion info = info_of(now.live);
      info.live = true;
      info.pinned = now.pinned;
      info.last_error = core().last_error_locked();
      return info;
    });
  });
}

std::vector<BundleVersion> Bundle::versions() const {
  return errors_only([&] {
    return core().look_at([](const policy::Releases::View& now) {
      std::vector<BundleVersion> infos;
      for (const auto& release : now.history.kept()) {
        infos.push_back(info_of(*release));
        infos.back().live = release.get() == &now.live;
        infos.back().pinned = infos.back().live && now.pinned;
      }
      return infos;
    });
  });
}

void Bundle::rollback(int number) const {
  errors_only([&] { core().rollback(number, /*pin=*/false); });
}

void Bundle::pin(int number) const {
  errors_only([&] { core().rollback(number, /*pin=*/true); });
}

Reload Bundle::unpin() const {
  return errors_only([&] { return policy::as_reload(core().unpin()); });
}

Reload Bundle::reload() const {
  return errors_only([&] { return policy::as_reload(core().reloads().follow(/*retry=*/true)); });
}

}  // namespace triage
