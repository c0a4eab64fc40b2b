// A policy that stands alone: its source is a file, or a text of the host.
#include "runtime/policy/releases/file_origin.h"

#include <fmt/format.h>

#include "runtime/files/checksum.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/core/making.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/releases/releases.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

class FileOrigin final : public ReleaseOrigin {
 public:
  /// `text`: in the place of a file.
  FileOrigin(Releases& releases, PolicyCore& policy, std::optional<std::string> text)
      : releases_(releases), policy_(policy), text_(std::move(text)) {}

  std::optional<std::string> read() const override { return file().empty() ? std::nullopt : read_source(file()); }

  Prepared make_first() override {
    const bool on_disk = !text_;
    std::optional<std::string> text = on_disk ? read() : std::exchange(text_, std::nullopt);
    releases_.reloads().note_deleted(!text);
    if (!text)
      throw FileError(fmt::format("cannot load the policy '{}': there is no such file", messages::one_line(path())),
                      {path(), 0});
    return first(policy::make_first(policy_, source_of(std::move(*text), on_disk), /*tests=*/false));
  }

  Prepared make_kept(const Contents& contents) override { return first(load_kept_version(policy_, contents)); }

  std::optional<Prepared> make(std::string text, bool on_disk) override {
    const std::shared_ptr<const Release> live = releases_.live();
    if (!releases_.reloads().is_as_seen(text, live->contents))
      return prepared(make_successor(policy_, source_of(std::move(text), on_disk), Becomes::live));
    if (on_disk) releases_.reloads().observe_read(live->contents);
    return std::nullopt;
  }

  std::string news() const override {
    const std::optional<Contents> seen = releases_.reloads().seen();
    const bool is_deleted = releases_.reloads().is_deleted();
    const bool none_seen = is_deleted || (!seen && releases_.pinned());  // a pinned policy only notes what there is
    try {
      const std::optional<std::string> source = read();
      if (!source) return none_seen ? "" : "deleted";
      if (is_deleted) return "restored";
      if (seen && *source == seen->source && is_unchanged(file(), seen->files)) return "";
      return files::checksum_text(files::checksum(*source)) + (seen ? fingerprint_of(file(), seen->files) : "");
    } catch (const NotNow& error) {
      return error.what();
    } catch (const FileError& error) {
      const auto last_error = releases_.last_error();
      return none_seen || (last_error && last_error->message == error.what()) ? "" : error.what();
    }
  }

  std::set<fs::path> places() const override {
    std::set<fs::path> places;
    std::error_code error;
    const fs::path target = fs::canonical(file(), error);
    if (!error) places = {target, target.parent_path()};
    places.merge(places_of(file(), releases_.reloads().files_seen()));
    return places;
  }

  std::vector<fs::path> files() const override {
    std::vector<fs::path> files = {file()};
    for (const std::string& name : releases_.reloads().files_seen()) files.push_back(file().parent_path() / name);
    return files;
  }

  std::string shown_file() const override { return path(); }

 private:
  const fs::path& file() const noexcept { return releases_.file(); }
  const std::string& path() const noexcept { return releases_.log().path(); }

  NewSource source_of(std::string text, bool on_disk) const {
    NewSource source{std::move(text), path(), file(), on_disk};
    if (const auto seen = releases_.reloads().seen()) source.known = seen->files;
    if (on_disk) source.on_read = [this](Contents read) { releases_.reloads().observe_read(std::move(read)); };
    return source;
  }

  Prepared prepared(std::shared_ptr<PolicyVersion> version) const {
    const std::string name = version->name;
    return {name, release_of(std::move(version))};
  }

  Prepared first(std::shared_ptr<PolicyVersion> version) const {
    policy_.begin_with(*version);
    return prepared(std::move(version));
  }

  Releases& releases_;
  PolicyCore& policy_;
  std::optional<std::string> text_;
};

Releases::MakeParts parts_of(std::optional<std::string> text) {
  return [text](Releases& releases) {
    Releases::ReleaseParts parts;
    auto policy = std::make_unique<PolicyCore>(releases.runtime().shared_from_this(), releases, releases.log().path(),
                                               releases.file());
    parts.origin = std::make_unique<FileOrigin>(releases, *policy, text);
    parts.history = std::make_unique<VersionHistory>(policy->line());
    parts.members.emplace("", std::move(policy));
    return parts;
  };
}

}  // namespace

std::shared_ptr<Releases> open_file(std::shared_ptr<RuntimeCore> runtime, const fs::path& path) {
  return Releases::open(std::move(runtime), "policy", path.string(), fs::absolute(path).lexically_normal(),
                        parts_of(std::nullopt));
}

std::shared_ptr<Releases> open_text(std::shared_ptr<RuntimeCore> runtime, std::string text, const std::string& name) {
  return Releases::open(std::move(runtime), "policy", name, {}, parts_of(std::move(text)));
}

}  // namespace triage::policy
