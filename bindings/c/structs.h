#pragma once
#include "bindings/c/status.h"

#include <fmt/format.h>
#include <triage/runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

/// What functions get and give through pointers.
namespace triage::c {

template <class T>
T& required(T* pointer, const char* name, const char* pass) {
  if (!pointer) throw Misuse(fmt::format("`{}` is null; pass {}", name, pass));
  return *pointer;
}

inline std::string_view text(const char* given, const char* name) { return &required(given, name, "a text"); }
inline std::string_view text_or(const char* given, const char* otherwise) { return given ? given : otherwise; }

/// The size that a struct had in the first version of the interface.
template <class T>
constexpr size_t first_size = sizeof(T);
template <>
inline constexpr size_t first_size<TriageRuntimeOptions> = offsetof(TriageRuntimeOptions, masked_rows);

template <class T>
void check_size(const T& given, const char* name) {
  if (given.size < first_size<T> || given.size > sizeof(T) || given.size % alignof(T) != 0)
    throw Misuse(
        fmt::format("`{}->size` is {}, but this library (interface version {}) knows a struct of {} bytes; set it to "
                    "sizeof the struct, and compile against the header of version {} or earlier",
                    name, given.size, TRIAGE_C_VERSION, sizeof(T), TRIAGE_C_VERSION));
}

/// A copy of the options of the host, with defaults for what its version of the struct lacks; all defaults for null.
template <class T>
T options_of(const T* given, const char* name) {
  T options{};
  if (!given) return options;
  check_size(*given, name);
  std::memcpy(&options, given, given->size);
  return options;
}

/// Fills as much of `to` as the host's version of the struct has.
template <class T>
void fill(T& to, T from) {
  from.size = to.size;
  std::memcpy(&to, &from, from.size);
}

/// A number that may be one of `count`, for an enum of C++ that has them in the same order.
template <class E = int32_t>
E choice(int32_t number, int32_t count, const char* name) {
  if (number < 0 || number >= count)
    throw Misuse(fmt::format("`{}` is {}; pass one of 0 to {} (triage_c.h names them)", name, number, count - 1));
  return static_cast<E>(number);
}

/// An array of the host, which may be null if it is empty.
template <class T>
std::pair<const T*, const T*> range(const T* first, size_t count, const char* name) {
  if (count > 0) required(first, name, "an array, or 0 as its number of elements");
  return {first, first + (first ? count : 0)};
}

/// `*count` is the room of an array of results, and becomes their number: how many of `found` the array takes.
template <class T>
size_t place(T* array, size_t& count, size_t found, const char* name) {
  const size_t room = count;
  count = 0;
  if (room > 0) required(array, name, "an array, or 0 as its room");
  count = found;
  return std::min(room, found);
}

/// `found` in an array of the host, whose elements have the size that its version of the struct has: as many as
/// `*count`, the room, which becomes their number.
template <class T, class Found, class Tell>
void fill_array(T* array, size_t* count, const char* name, const Found& find, const Tell& tell) {
  size_t& room = required(count, "count", "the address of the number of elements that there is room for");
  if (room > 0) check_size(required(array, name, "an array, or 0 as its room"), name);
  const auto& found = find();
  const size_t placed = place(array, room, found.size(), name), size = placed > 0 ? array->size : 0;
  for (size_t i = 0; i < placed; ++i) {
    auto* element = reinterpret_cast<T*>(reinterpret_cast<char*>(array) + i * size);
    element->size = size;
    fill(*element, tell(found[i]));
  }
}

/// What versions of policies and of bundles have in common.
template <class Told, class Version>
void tell_standing(Told& told, const Version& version) {
  told.number = version.number;
  told.live = version.live;
  told.pinned = version.pinned;
  told.on_trial = version.on_trial;
  told.taken_back = version.taken_back;
  told.since_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(version.since.time_since_epoch()).count();
  const LoadFailure* const error = version.last_error ? &*version.last_error : nullptr;
  told.last_error = error ? error->message.c_str() : "";
  told.last_error_file = error ? error->source.file.c_str() : "";
  told.last_error_line = error ? error->source.line : 0;
}

inline void tell(Reload reloaded, int32_t* result) {
  if (result) *result = static_cast<int32_t>(reloaded);
}

inline void copy_hash(char (&to)[24], std::string_view hash) {
  const size_t length = std::min(hash.size(), sizeof(to) - 1);
  std::memcpy(to, hash.data(), length);
  to[length] = 0;
}

}  // namespace triage::c
