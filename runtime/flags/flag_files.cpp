#include "runtime/flags/flag_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <runtime/compat/readable_values.h>
#include <runtime/flags/forms.h>
#include <runtime/flags/records/errors.h>
#include <triage/files.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "runtime/files/formats.h"
#include "runtime/files/json.h"
#include "runtime/files/shown_path.h"
#include "runtime/location/owner.h"
#include "runtime/messages/boundary.h"
#include "runtime/messages/printable.h"

namespace triage::flags {
namespace {

using files::Malformed;
using Json = nlohmann::json;

constexpr size_t longest_path = 1000, longest_code = 64, most_keys = 1000;

ErrorConfig effective(const ConfigOptions& options) { return options.config ? *options.config : get_config(); }

/// Ids of the locations that flags on the CPU have, each once, in their order; without what overflow records count.
std::vector<int64_t> ids_in(const at::Tensor& contiguous, const ErrorConfig& config) {
  const Overflow overflow(contiguous, config);
  std::array<bool, ErrorLocation::MAX_LOCATION_ID + 1> seen{};
  each_error(contiguous, 0, contiguous.size(0), [&](int64_t, int64_t index, uint16_t slot) {
    if (!overflow.is(index, slot)) seen[slot >> LOCATION_SHIFT] = true;
  });
  std::vector<int64_t> ids;
  for (size_t id = 0; id < seen.size(); ++id)
    if (seen[id]) ids.push_back(static_cast<int64_t>(id));
  return ids;
}

// --- the note

std::string object_of(const std::vector<std::pair<int64_t, std::string>>& names) {
  std::vector<std::string> members;
  for (const auto& [number, name] : names)
    members.push_back(fmt::format("\"{}\":{}", number, messages::json_text(name)));
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

/// Text of a file: it stands in lines that people read.
bool is_readable(const std::string& text, size_t longest) {
  return !text.empty() && text.size() <= longest && std::none_of(text.begin(), text.end(), is_control);
}

std::string text_in(const Json& value, size_t longest) {
  if (!value.is_string()) throw Malformed("its names of flags are damaged: expected text");
  std::string text = value.get<std::string>();
  if (!is_readable(text, longest))
    throw Malformed(
        fmt::format("its names of flags are damaged: expected one line of 1 to {} bytes as each name", longest));
  return text;
}

int64_t number_in(const std::string& key, int64_t most) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
  if (error != std::errc() || end != key.data() + key.size() || number < 0 || number > most)
    throw Malformed(fmt::format("its names of flags are damaged: expected numbers of 0 to {}", most));
  return number;
}

/// A name for a free code, as a policy may declare it.
CodeName read_code(const std::string& number, const Json& json, const CodeNames& known) {
  const Code code = code_from(number_in(number, CODE_MASK));
  std::string name = text_in(json, longest_code);
  const bool is_free = code == code_from(4) || code == code_from(8) || code == code_from(12);
  const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  bool is_taken = std::any_of(known.begin(), known.end(), [&](const CodeName& one) { return one.name == name; });
  for (int64_t i = 0; i <= CODE_MASK; ++i) is_taken |= name == code_name(code_from(i));
  if (!is_free || !is_name || is_taken)
    throw Malformed("its names of flags are damaged: expected names in capitals, each once, of the codes 4, 8 and 12");
  return {code, std::move(name)};
}

const Json& member(const Json& note, const char* name) {
  const auto found = note.find(name);
  if (found == note.end()) throw Malformed(fmt::format("its names of flags are damaged: there is no \"{}\"", name));
  return *found;
}

FileNames read_names(const std::string& note) {
  const Json json = files::parse_json(note, "its note of flags", {.depth = 3, .values = 10'000});
  if (!json.is_object()) throw Malformed("its names of flags are damaged: expected an object");
  FileNames names;
  const Json &tensors = member(json, "flags"), &locations = member(json, "locations"), &codes = member(json, "codes");
  if (!tensors.is_array() || tensors.size() > most_keys || !locations.is_object() || !codes.is_object())
    throw Malformed("its names of flags are damaged: expected a list of keys, locations by id and codes by number");
  for (const Json& key : tensors) {
    if (!key.is_string()) throw Malformed("its names of flags are damaged: expected text");
    names.tensors.push_back(key.get<std::string>());
  }
  for (const auto& [id, name] : locations.items())
    names.locations.emplace(number_in(id, ErrorLocation::MAX_LOCATION_ID), text_in(name, longest_path));
  for (const auto& [number, name] : codes.items()) names.codes.push_back(read_code(number, name, names.codes));
  std::sort(names.codes.begin(), names.codes.end(),
            [](const CodeName& a, const CodeName& b) { return a.code < b.code; });
  return names;
}

// --- ids

/// The id that each one of the file has here.
using Ids = std::array<uint16_t, ErrorLocation::MAX_LOCATION_ID + 1>;

at::Tensor translated(const at::Tensor& contiguous, const Ids& ids, const ErrorConfig& config) {
  const at::Tensor result = contiguous.clone();
  const cpu::SlotRows rows(result);
  const Overflow overflow(contiguous, config);
  each_error(contiguous, 0, contiguous.size(0), [&](int64_t sample, int64_t index, uint16_t slot) {
    if (overflow.is(index, slot)) return;
    const auto rest = static_cast<uint16_t>(slot & ~LOCATION_IN_SLOT);
    rows[sample][index] = static_cast<uint16_t>(rest | ids[slot >> LOCATION_SHIFT] << LOCATION_SHIFT);
  });
  return result;
}

/// Records fill from slot 0, each error has a code, and an empty slot is all zero.
bool can_be_flags(const at::Tensor& contiguous) {
  const cpu::SlotRows rows(contiguous);
  for (int64_t row = 0; row < rows.count; ++row) {
    bool ended = false;
    for (int64_t i = 0; i < rows.width; ++i) {
      const uint16_t slot = rows[row][i];
      const bool is_error = (slot & SEVERITY_MASK) != 0;
      if (is_error ? ended || (slot & CODE_IN_SLOT) == 0 : slot != 0) return false;
      ended |= !is_error;
    }
  }
  return true;
}

}  // namespace

bool FileNames::is_flags(const std::string& key) const {
  return std::find(tensors.begin(), tensors.end(), key) != tensors.end();
}

std::string note_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors, const InspectOptions& options) {
  std::vector<std::string> keys;
  std::map<int64_t, std::string> locations;
  for (const auto& [key, f] : tensors) {
    keys.push_back(messages::json_text(key));
    for (const int64_t id : ids_in(compat::readable_values(f), effective({options.config})))
      if (const std::string path = ErrorLocation::path(id); is_readable(path, longest_path))
        locations.emplace(id, path);
  }
  std::vector<std::pair<int64_t, std::string>> codes;
  for (const CodeName& one : options.codes)
    if (is_readable(one.name, longest_code)) codes.emplace_back(to_int(one.code), one.name);
  return fmt::format(R"({{"flags":[{}],"locations":{},"codes":{}}})", fmt::join(keys, ","),
                     object_of({locations.begin(), locations.end()}), object_of(codes));
}

FileNames names_in(const std::string& path) {
  const std::string note = files::read_note(path);
  if (note.empty()) return {};
  return messages::errors_only([&] {
    try {
      return read_names(note);
    } catch (const Malformed& error) {
      throw FileError(
          fmt::format("cannot read \"{}\": {}", files::shown(path), messages::one_line(std::string(error.what()))));
    }
  });
}

bool has_known_form(const at::Tensor& tensor) {
  if (tensor.dim() != 2 || tensor.layout() != at::kStrided) return false;
  const ErrorConfig& config = get_config();
  return (tensor.scalar_type() == config.flag_dtype && tensor.size(1) == config.num_words()) ||
         KnownForms::has(tensor.scalar_type(), tensor.size(1));
}

at::Tensor with_own_ids(const char* op, const at::Tensor& f, const std::map<int64_t, std::string>& locations,
                        const ConfigOptions& options) {
  check::flags(op, f);
  KnownForms::add(options.config);
  check::known(op, f);
  const at::Tensor words = compat::readable_values(f);
  const ErrorConfig config = effective(options);
  Ids ids{};
  bool all_stay = true;
  for (const int64_t id : ids_in(words, config)) {
    const auto named = locations.find(id);
    const std::string path = named != locations.end() ? named->second : fmt::format("Location_{}", id);
    const int64_t own = id == ErrorLocation::UNKNOWN ? id : adopt_location(path, id);
    ids[static_cast<size_t>(id)] = static_cast<uint16_t>(own);
    all_stay &= own == id;
  }
  return all_stay ? f : translated(words, ids, config);
}

std::vector<int64_t> reserve_ids(const at::Tensor& maybe_flags) {
  std::vector<int64_t> taken;
  if (!has_known_form(maybe_flags) || !maybe_flags.is_cpu()) return taken;
  const at::Tensor words = compat::readable_values(maybe_flags);
  if (!can_be_flags(words)) return taken;
  for (const int64_t id : ids_in(words, get_config()))
    if (id != ErrorLocation::UNKNOWN && !reserve_location(id)) taken.push_back(id);
  return taken;
}

void save(const std::string& path, const at::Tensor& f, const InspectOptions& options) {
  check::flags("flags.save", f);
  KnownForms::add(options.config);
  check::known("flags.save", f);
  const auto [file, key] = split_key(path);
  c10::IValue value = f;
  if (!key.empty()) {
    c10::impl::GenericDict named(c10::StringType::get(), c10::AnyType::get());
    named.insert(key, f);
    value = named;
  }
  messages::errors_only([&, &name = file, &entry = key] {
    files::save({{name, value, note_of({{entry, f}}, options)}});
  });
}

Loaded load(const std::string& path, const ConfigOptions& options) {
  const at::Tensor f = load_tensor(path);
  FileNames names = names_in(path);
  return {with_own_ids("flags.load", f, names.locations, options), std::move(names.codes)};
}

}  // namespace triage::flags
