#include "runtime/files/json.h"

#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "runtime/files/disk.h"

namespace triage::files {
namespace {

using Json = nlohmann::json;

/// Looks at a text before anything is made of it. (A callback of Json::parse could, but the library then looks through
/// all members of an object for each that ends.)
class JsonBoundsChecker final : public nlohmann::json_sax<Json> {
 public:
  JsonBoundsChecker(std::string_view what, const JsonBounds& bounds) : what_(what), bounds_(bounds) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(Json::number_integer_t) override { return count(); }
  bool number_unsigned(Json::number_unsigned_t) override { return count(); }
  bool number_float(Json::number_float_t, const std::string&) override { return count(); }
  bool string(std::string&) override { return count(); }
  bool binary(Json::binary_t&) override { return count(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!names_.back().insert(name).second) throw Malformed(fmt::format("{} has the name \"{}\" twice", what_, name));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw Malformed(fmt::format("{} is not JSON ({})", what_, std::string_view(error.what()).substr(0, 300)));
  }

 private:
  bool count() {
    if (++values_ > bounds_.values)
      throw Malformed(fmt::format("{} has more than {} values, which is the limit", what_, bounds_.values));
    return true;
  }
  bool open() {
    names_.emplace_back();
    if (names_.size() > bounds_.depth)
      throw Malformed(fmt::format("{} is nested more than {} deep", what_, bounds_.depth));
    return count();
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  std::string_view what_;
  JsonBounds bounds_;
  size_t values_ = 0;
  std::vector<std::unordered_set<std::string>> names_;  // of the objects that are open
};

}  // namespace

void check_json(std::string_view text, std::string_view what, const JsonBounds& bounds) {
  if (text.find('\0') != std::string_view::npos)  // where the library would stop
    throw Malformed(fmt::format("{} is not JSON (it holds a byte 0)", what));
  JsonBoundsChecker checker(what, bounds);
  Json::sax_parse(text, &checker);
}

Json parse_json(std::string_view text, std::string_view what, const JsonBounds& bounds) {
  check_json(text, what, bounds);
  return Json::parse(text);
}

}  // namespace triage::files
