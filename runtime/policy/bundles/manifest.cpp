#include "runtime/policy/bundles/manifest.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "runtime/files/disk.h"
#include "runtime/files/json.h"
#include "runtime/messages/printable.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t most_files = 4096, longest_text = 255;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw FileError(fmt::format("cannot read the bundle '{}': {}", path.string(), why), {path.string(), 0});
}

std::string text_field(const Json& json, const char* field, const fs::path& path, bool needed) {
  const auto found = json.find(field);
  if (found == json.end() && !needed) return {};
  if (found == json.end() || !found->is_string() || found->get_ref<const std::string&>().empty())
    refuse(path, fmt::format("expected \"{}\" to be a text, as in \"{}\": \"1.0\"", field, field));
  std::string text = found->get<std::string>();
  if (text.size() > longest_text || messages::one_line(text) != text)
    refuse(path, fmt::format("\"{}\" has more than {} bytes, or control characters", field, longest_text));
  return text;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Manifest::Listed list_field(const Json& json, const char* field, const fs::path& path) {
  Manifest::Listed listed;
  const auto found = json.find(field);
  if (found == json.end()) return listed;
  if (!found->is_object())
    refuse(path, fmt::format("expected \"{}\" to be an object of files and their SHA-256", field));
  for (const auto& [name, hash] : found->items()) {
    try {
      check_name(name);
    } catch (const FileError& error) {
      refuse(path, error.what());
    }
    if (!hash.is_string() || !is_sha256(hash.get_ref<const std::string&>()))
      refuse(path, fmt::format("expected the SHA-256 of '{}', 64 hexadecimal digits in lower case",
                               messages::one_line(name)));
    listed[name] = hash.get<std::string>();
  }
  return listed;
}

void check_files(const Manifest& manifest, const fs::path& path) {
  if (manifest.policies.empty())
    refuse(path, "it lists no policies; expected \"policies\": {\"repair.lua\": \"SHA-256\"}");
  const size_t count = manifest.policies.size() + manifest.modules.size() + manifest.tables.size();
  if (count > most_files) refuse(path, fmt::format("it lists {} files, more than {}", count, most_files));
  if (manifest.files().size() != count) refuse(path, "it lists a file twice, as a policy, a module or a table");
  std::set<std::string> keys;
  for (const auto& [file, hash] : manifest.policies)
    if (!keys.insert(policy_key(file)).second)
      refuse(path, fmt::format("it lists two policies with the name '{}'", policy_key(file)));
}

using Numbers = std::array<int, 3>;

/// "1", "1.2", "1.2.3".
std::optional<Numbers> version_numbers(std::string_view text) {
  Numbers numbers{};
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers[i]);
    if (error != std::errc() || numbers[i] < 0) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return numbers;
    if (text.front() != '.') return std::nullopt;
    text.remove_prefix(1);
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// One condition: ">=1.2".
bool fits_condition(std::string_view condition, const Numbers& version, const std::string& range) {
  const size_t length = std::min(condition.find_first_not_of("<>="), condition.size());
  const std::string_view sign = condition.substr(0, length);
  const auto wanted = version_numbers(trimmed(condition.substr(length)));
  if (wanted && sign == ">=") return version >= *wanted;
  if (wanted && sign == ">") return version > *wanted;
  if (wanted && sign == "<=") return version <= *wanted;
  if (wanted && sign == "<") return version < *wanted;
  if (wanted && sign == "=") return version == *wanted;
  throw InputError(
      fmt::format("expected versions of triage such as \">=0.1, <2\", got \"{}\"", messages::one_line(range)));
}

}  // namespace

bool fits_range(const std::string& range, const std::string& version) {
  const Numbers mine = version_numbers(version).value();
  bool fits = true;
  for (std::string_view rest = range; !trimmed(rest).empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    fits = fits_condition(trimmed(rest.substr(0, end)), mine, range) && fits;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return fits;
}

std::string policy_key(const std::string& file) { return fs::path(file).replace_extension().generic_string(); }

Manifest::Listed Manifest::files() const {
  Listed all = policies;
  all.insert(modules.begin(), modules.end());
  all.insert(tables.begin(), tables.end());
  return all;
}

std::string Manifest::text() const {
  nlohmann::ordered_json json = {{"name", name}, {"version", version}};
  if (!triage.empty()) json["triage"] = triage;
  json["policies"] = policies;
  if (!modules.empty()) json["modules"] = modules;
  if (!tables.empty()) json["tables"] = tables;
  try {
    return json.dump(2) + "\n";
  } catch (const Json::exception&) {  // JSON has no such texts
    throw FileError(fmt::format("cannot write {} of the bundle '{}': the name of the bundle or of a file is not UTF-8",
                                manifest_name, messages::one_line(name)));
  }
}

Manifest parse_manifest(std::string_view text, const fs::path& path) {
  const auto json = [&] {
    try {
      return files::parse_json(text, "it", {.depth = 4, .values = 3 * most_files});
    } catch (const files::Malformed& error) {
      refuse(path, error.what());
    }
  }();
  if (!json.is_object()) refuse(path, "expected a JSON object with \"name\", \"version\" and \"policies\"");
  const std::set<std::string> known = {"name", "version", "triage", "policies", "modules", "tables"};
  for (const auto& item : json.items())
    if (!known.count(item.key()))
      refuse(path, fmt::format("there is no field \"{}\" (fields: name, version, triage, policies, modules, tables)",
                               messages::one_line(item.key())));
  Manifest manifest;
  manifest.name = text_field(json, "name", path, /*needed=*/true);
  manifest.version = text_field(json, "version", path, /*needed=*/true);
  manifest.triage = text_field(json, "triage", path, /*needed=*/false);
  manifest.policies = list_field(json, "policies", path);
  manifest.modules = list_field(json, "modules", path);
  manifest.tables = list_field(json, "tables", path);
  check_files(manifest, path);
  return manifest;
}

}  // namespace triage::policy
