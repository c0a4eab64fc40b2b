#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include <triage/files.h>
#include "runtime/files/formats.h"
#include "runtime/files/shown_path.h"
#include "runtime/messages/boundary.h"

namespace triage {
namespace {

using files::Malformed;

enum class Format { pt, npy, safetensors };

struct Ending {
  std::string_view text;
  Format format;
};
constexpr std::array endings = {Ending{".pt", Format::pt}, Ending{".pth", Format::pt}, Ending{".npy", Format::npy},
                                Ending{".safetensors", Format::safetensors}};

std::optional<Format> format_of(std::string_view path) {
  for (const Ending& ending : endings) {
    if (path.size() > ending.text.size() && path.substr(path.size() - ending.text.size()) == ending.text)
      return ending.format;
  }
  return std::nullopt;
}

Format require_format(const std::string& path, const char* verb) {
  if (auto format = format_of(path)) return *format;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw FileError(fmt::format("cannot {} \"{}\": it is a folder; name a file in it", verb, files::shown(path)));
  std::string ending = std::filesystem::path(path).extension().string();
  throw FileError(fmt::format(
      "cannot {} \"{}\": {}; the known extensions are .pt, .pth, .npy and .safetensors{}", verb, files::shown(path),
      ending.empty() ? "its name has no extension" : fmt::format("the extension {} is not known", ending),
      ending == ".npz" ? ". Save each array with numpy.save" : ""));
}

/// The first line of what LibTorch says, without its backtrace.
std::string reason(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "there is not enough memory for it";
  auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

/// Text from a file may hold anything, and be long; a message is one line and moves no cursor.
std::string one_line(std::string text) {
  constexpr size_t longest = 2000;
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return text;
}

/// Runs `fn` and gives every failure the one form of FileError.
template <typename F>
auto with_path(const char* verb, const std::string& path, F fn) {
  try {
    return fn();
  } catch (const FileError&) {
    throw;
  } catch (const Malformed& error) {
    throw FileError(fmt::format("cannot {} \"{}\": {}", verb, files::shown(path), one_line(error.what())));
  } catch (const std::exception& error) {
    throw FileError(fmt::format("cannot {} \"{}\": it is damaged, or its format does not match its extension ({})",
                                verb, files::shown(path), one_line(reason(error))));
  }
}

/// `from`: the path, or the bytes.
template <typename From>
c10::IValue read(const std::string& path, const std::string& key, const From& from) {
  Format format = require_format(path, "read");
  return with_path("read", path, [&]() -> c10::IValue {
    files::InputFile file(from);
    if (file.size() == 0) throw Malformed("it is empty");
    switch (format) {
      case Format::pt:
        return files::read_pt(file, key);
      case Format::npy:
        return files::read_npy(file);
      case Format::safetensors:
        return files::read_safetensors(file, key);
    }
    throw Malformed("unknown format");
  });
}

std::string describe(const c10::IValue& value) {
  if (value.isTensor())
    return fmt::format("{} {}", dtype_name(value.toTensor().scalar_type()),
                       files::describe_shape(value.toTensor().sizes()));
  if (value.isGenericDict()) return fmt::format("dict of {}", value.toGenericDict().size());
  if (value.isList()) return fmt::format("list of {}", value.toListRef().size());
  if (value.isTuple()) return fmt::format("tuple of {}", value.toTupleRef().elements().size());
  if (files::why_not_read(value)) return "cannot be read";
  return value.isNone() ? "None" : value.isString() ? "a string" : "a number";
}

std::string key_text(const c10::IValue& key) {
  return key.isString() ? key.toStringRef() : std::to_string(key.toInt());
}

using Items = std::vector<std::pair<std::string, c10::IValue>>;

/// What a key can pick from: entries of a dict, elements of a list or tuple by index.
Items items_of(const c10::IValue& value) {
  Items items;
  auto add = [&](const c10::IValue& item) { items.emplace_back(std::to_string(items.size()), item); };
  if (value.isGenericDict()) {
    for (const auto& pair : value.toGenericDict()) items.emplace_back(key_text(pair.key()), pair.value());
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) add(item);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) add(item);
  }
  return items;
}

std::string list_keys(const Items& items) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : items) {
    if (lines.size() == 12) {
      lines.push_back(fmt::format("{} more", items.size() - 12));
      break;
    }
    lines.push_back(fmt::format("{} ({})", key, describe(value)));
  }
  return lines.empty() ? "nothing" : fmt::format("{}", fmt::join(lines, ", "));
}

const c10::IValue* find(const Items& items, const std::string& key, bool by_index) {
  int64_t index = 0;
  auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (by_index && error == std::errc() && end == key.data() + key.size()) {
    if (index < 0) index += static_cast<int64_t>(items.size());
    return index >= 0 && index < static_cast<int64_t>(items.size()) ? &items[static_cast<size_t>(index)].second
                                                                    : nullptr;
  }
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

/// Whether everything in it could be read.
bool is_whole(const c10::IValue& value) {
  if (value.isGenericDict()) {
    for (const auto& pair : value.toGenericDict())
      if (!is_whole(pair.value())) return false;
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements())
      if (!is_whole(item)) return false;
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef())
      if (!is_whole(item)) return false;
  }
  return files::why_not_read(value) == nullptr;
}

/// Throws FileError that names the first entry of `value` which could not be read. `entry`: the key of `value` itself.
void check_read(const std::string& file, const c10::IValue& value, const std::string& entry) {
  if (const std::string* why = files::why_not_read(value)) {
    throw FileError(fmt::format("cannot read \"{}:{}\": {}. Each other entry of the file can be read as {}:KEY",
                                files::shown(file), one_line(entry), one_line(*why), files::shown(file)));
  }
  if (is_whole(value)) return;
  for (const auto& [key, item] : items_of(value)) check_read(file, item, entry.empty() ? key : entry + ':' + key);
}

/// The value at `key`; `outer:inner` where no key of the whole name exists.
c10::IValue pick(const std::string& path, const c10::IValue& value, const std::string& key) {
  if (files::why_not_read(value)) check_read(path, value, key);
  Items items = items_of(value);
  if (value.isTensor())
    throw FileError(fmt::format(
        "cannot read \"{}:{}\": the file holds one tensor, not several by name; leave the key out", path, key));
  bool by_index = !value.isGenericDict();
  if (const c10::IValue* found = find(items, key, by_index)) return *found;
  for (size_t colon = key.find(':'); colon != std::string::npos; colon = key.find(':', colon + 1)) {
    if (const c10::IValue* outer = find(items, key.substr(0, colon), by_index))
      return pick(path, *outer, key.substr(colon + 1));
  }
  throw FileError(
      fmt::format("cannot read \"{}:{}\": the file has no \"{}\"; it holds {}", path, key, key, list_keys(items)));
}

c10::IValue picked(const std::string& file, const std::string& key, c10::IValue value) {
  return key.empty() ? value : pick(file, value, key);
}

at::Tensor only_tensor(const std::string& path, const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  Items items = items_of(value);
  if (items.size() == 1 && items[0].second.isTensor()) return items[0].second.toTensor();
  if (items.size() == 1) check_read(path, items[0].second, items[0].first);
  if (items.empty())
    throw FileError(fmt::format("cannot read \"{}\": expected one tensor, but it holds {}", path, describe(value)));
  const auto one = std::find_if(items.begin(), items.end(), [](const auto& item) { return item.second.isTensor(); });
  throw FileError(fmt::format("cannot read \"{0}\": expected one tensor, but it holds a {1}: {2}. Pick one as {0}:{3}",
                              path, describe(value), list_keys(items),
                              (one == items.end() ? items.begin() : one)->first));
}

void write(files::OutputFile& file, Format format, const c10::IValue& value, const std::string& note) {
  switch (format) {
    case Format::pt:
      return files::write_pt(file, value, note);
    case Format::npy:
      if (!value.isTensor())
        throw Malformed(
            fmt::format("an .npy file holds one tensor, not a {}; .pt and .safetensors hold several", describe(value)));
      return files::write_npy(file, value.toTensor());
    case Format::safetensors:
      return files::write_safetensors(file, value);
  }
}

}  // namespace

std::pair<std::string, std::string> split_key(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return {path, ""};
  return files::split_key_of_name(path);
}

std::pair<std::string, std::string> files::split_key_of_name(const std::string& path) {
  for (size_t colon = path.find(':'); colon != std::string::npos; colon = path.find(':', colon + 1)) {
    if (format_of(std::string_view(path).substr(0, colon))) return {path.substr(0, colon), path.substr(colon + 1)};
  }
  return {path, ""};
}

bool files::has_known_ending(const std::string& file) { return format_of(file).has_value(); }

void check_ending(const std::string& path) { require_format(split_key(path).first, "use"); }

c10::IValue load_file(const std::string& path) {
  return messages::errors_only([&] {
    const auto [file, key] = split_key(path);
    c10::IValue value = picked(file, key, read(file, key, file));
    check_read(file, value, key);
    return value;
  });
}

c10::IValue files::load_bytes(const std::string& path, std::string_view bytes) {
  const auto [file, key] = split_key_of_name(path);
  c10::IValue value = picked(file, key, read(file, key, bytes));
  check_read(file, value, key);
  return value;
}

at::Tensor load_tensor(const std::string& path) {
  return messages::errors_only([&] {
    const auto [file, key] = split_key(path);
    const c10::IValue value = picked(file, key, read(file, key, file));
    if (files::why_not_read(value)) check_read(file, value, key);
    return only_tensor(path, value);
  });
}

void save_tensor(const std::string& path, const at::Tensor& tensor) {
  messages::errors_only([&] {
    auto [file, key] = split_key(path);
    if (key.empty()) return save_file(file, tensor);
    c10::impl::GenericDict named(c10::StringType::get(), c10::AnyType::get());
    named.insert(key, tensor);
    save_file(file, named);
  });
}

void save_file(const std::string& path, const c10::IValue& value) { save_files({{path, value}}); }

void save_files(const std::vector<std::pair<std::string, c10::IValue>>& values) {
  std::vector<files::SavedFile> all;
  for (const auto& [path, value] : values) all.push_back({path, value});
  files::save(all);
}

void files::save(const std::vector<SavedFile>& values) {
  messages::errors_only([&] {
    std::vector<OutputFile> written;
    for (const auto& [path, value, note] : values) {
      Format format = require_format(path, "write");
      written.emplace_back(path);
      try {
        write(written.back(), format, value, note);
      } catch (const FileError&) {
        throw;
      } catch (const std::exception& error) {
        throw FileError(fmt::format("cannot write \"{}\": {}", path, reason(error)));
      }
      written.back().flush();
    }
    for (OutputFile& file : written) file.commit();
  });
}

std::string files::read_note(const std::string& path) {
  return messages::errors_only([&]() -> std::string {
    const auto [file, key] = split_key(path);
    if (require_format(file, "read") != Format::pt) return {};
    return with_path("read", file, [&, &name = file] { return read_pt_note(InputFile(name)); });
  });
}

}  // namespace triage
