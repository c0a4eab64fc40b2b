// Flags in files: whatever process wrote them, they are shown with the names of their file, and never with this
// process's name of another place.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <filesystem>
#include <string>

#include "runtime/files/formats.h"
#include "runtime/flags/flag_files.h"
#include "tests/cli/folder.h"

namespace triage::test {
namespace {

using at::Tensor;

Tensor flags_at(const std::vector<std::pair<Code, Location>>& errors, const ErrorConfig& config = {}) {
  Tensor f = err::new_t(2, {.config = config});
  for (const auto& [code, location] : errors) f = err::push(f, code, location, {.config = config});
  return f;
}

bool same_words(const Tensor& a, const Tensor& b) { return a.scalar_type() == b.scalar_type() && a.equal(b); }

template <class Error>
std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("flags of another process have their names, and their words where the ids are free") {
  const TemporaryFolder folder;
  ErrorLocation::reset();
  ErrorLocation::register_path("unused");
  const Tensor f = flags_at({{err::nan, Location("encoder")}, {code_from(4), Location("head.2")}, {err::inf, 0}});
  const std::string repr = flags::repr(f);
  flags::save(folder / "f.pt", f, {.codes = {{code_from(4), "MISSING"}}});
  CHECK(same_words(load_tensor(folder / "f.pt"), f));  // the value of the file is the tensor

  ErrorLocation::reset();  // the next process
  const flags::Loaded loaded = flags::load(folder / "f.pt");
  CHECK(same_words(loaded.f, f));
  CHECK(flags::repr(loaded.f) == repr);
  CHECK(flags::repr(loaded.f, {.codes = loaded.codes}) ==
        "ErrorFlags(2 samples, 6 errors: 2xNAN, 2xMISSING, 2xINF @ Unknown, encoder, head.2)");
  CHECK(ErrorLocation::register_path("mine") > 3);  // no id of the flags
  CHECK(ErrorLocation::name(1) == "Location_1");    // that nobody has named here
  CHECK_FALSE(ErrorLocation::is_registered("unused"));
  CHECK(flags::repr(flags::load(folder / "f.pt").f) == repr);  // again
}

TEST_CASE("an id that is another place here becomes the id of its name") {
  const TemporaryFolder folder;
  ErrorLocation::reset();
  const Tensor f = flags_at({{err::nan, Location("a")}, {err::inf, Location("b")}, {err::overflow, Location("c")}});
  flags::save(folder / "f.pt:first", f);
  ErrorLocation::reset();
  for (const char* path : {"b", "mine", "other"}) ErrorLocation::register_path(path);
  const Tensor own = flags::load(folder / "f.pt:first").f;
  CHECK_FALSE(same_words(own, f));
  CHECK(flags::pretty_print(own, 1) ==
        "Found 3 error(s):\n  [0] CRITICAL | NUMERIC.NAN | @ a\n  [1] CRITICAL | NUMERIC.INF | @ b\n"
        "  [2] ERROR | NUMERIC.OVERFLOW | @ c");
  CHECK(ErrorLocation::get("b") == 1);
  CHECK(same_words(flags::load(folder / "f.pt").f, own));  // the only tensor of the file
}

TEST_CASE("flags of a file without names are shown as ids, whatever has these ids here") {
  const TemporaryFolder folder;
  ErrorLocation::reset();
  const Tensor f = flags_at({{err::nan, Location(2)}, {err::inf, Location(17)}});
  for (const char* name : {"f.npy", "f.safetensors", "f.pt"}) {
    CAPTURE(name);
    save_tensor(folder / name, f);
    ErrorLocation::reset();
    CHECK(same_words(flags::load(folder / name).f, f));
    ErrorLocation::reset();
    for (const char* path : {"one", "two", "three"}) ErrorLocation::register_path(path);
    const Tensor own = flags::load(folder / name).f;
    CHECK(flags::repr(own) == "ErrorFlags(2 samples, 4 errors: 2xNAN, 2xINF @ Location_17, Location_2)");
    for (int i = 0; i < 20; ++i) CHECK(ErrorLocation::register_path("p" + std::to_string(i)) != 17);
    CHECK(flags::repr(own) == "ErrorFlags(2 samples, 4 errors: 2xNAN, 2xINF @ Location_17, Location_2)");
  }
}

TEST_CASE("the number of dropped errors is no id, and flags of any carrier are read") {
  const TemporaryFolder folder;
  for (const auto dtype : {at::kLong, at::kInt, at::kFloat, at::kDouble}) {
    CAPTURE(dtype);
    ErrorLocation::reset();
    const ErrorConfig config{.flag_dtype = dtype, .num_slots = 4, .track_overflow = true};
    const Tensor f = flags_at({{err::nan, Location("a")},
                               {err::inf, Location("b")},
                               {err::overflow, Location("c")},
                               {err::oob, Location("d")},
                               {err::saturated, Location("e")}},
                              config);
    flags::save(folder / "f.pt", f, {.config = config});
    ErrorLocation::reset();
    for (const char* path : {"x", "y"}) ErrorLocation::register_path(path);
    const Tensor own = flags::load(folder / "f.pt", {config}).f;
    CHECK(flags::repr(own, {.config = config}) ==
          "ErrorFlags(2 samples, 6 errors: 2xNAN, 2xINF, 2xOVERFLOW @ a, b, c; 4 dropped)");
    CHECK_FALSE(ErrorLocation::is_registered("d"));
  }
}

TEST_CASE("where no id is free, flags of a file keep less of their names, and never another's") {
  const TemporaryFolder folder;
  ErrorLocation::reset();
  const Tensor f = flags_at({{err::nan, Location("encoder.2")}, {err::inf, Location("head")}});
  flags::save(folder / "f.pt", f);
  ErrorLocation::reset();
  ErrorLocation::register_path("encoder");
  for (int i = 1; i < ErrorLocation::MAX_LOCATION_ID; ++i) ErrorLocation::register_path("mine." + std::to_string(i));
  CHECK(flags::repr(flags::load(folder / "f.pt").f) ==
        "ErrorFlags(2 samples, 4 errors: 2xNAN, 2xINF @ Unknown, encoder)");
  ErrorLocation::reset();
}

TEST_CASE("ids of a tensor that may be flags get no other name") {
  ErrorLocation::reset();
  for (const char* path : {"one", "two"}) ErrorLocation::register_path(path);
  CHECK(flags::reserve_ids(flags_at({{err::nan, Location(2)}, {err::inf, Location(4)}})) == std::vector<int64_t>{2});
  CHECK(ErrorLocation::name(4) == "Location_4");
  for (int i = 0; i < 5; ++i) CHECK(ErrorLocation::register_path("p" + std::to_string(i)) != 4);
  CHECK(flags::reserve_ids(flags_at({{err::inf, Location(4)}})).empty());
  // Data: entries behind an empty slot, an empty slot that is not zero, a form that no flags have.
  for (const Tensor& data : {at::full({2, 4}, 0x5000000000000, at::kLong), at::full({2, 4}, 100 << 6, at::kLong),
                             at::full({2, 5}, 0x41, at::kLong), at::ones({2, 4}), at::ones({4}, at::kLong)})
    CHECK(flags::reserve_ids(data).empty());
  CHECK(ErrorLocation::count() == 10);
}

TEST_CASE("damaged names of a file are an error that names it") {
  const TemporaryFolder folder;
  const Tensor f = flags_at({{err::nan, Location(1)}});
  const auto refused = [&](const std::string& note, const std::string& why) {
    CAPTURE(note);
    files::save({{folder / "f.pt", f, note}});
    const std::string message = message_of<FileError>([&] { flags::load(folder / "f.pt"); });
    CAPTURE(message);
    CHECK(says(message, "cannot read \"" + (folder / "f.pt") + "\": its "));
    CHECK(says(message, why));
    CHECK(says(message, "\n") == false);
  };
  const auto with_locations = [](const std::string& locations) {
    return R"({"flags":[""],"locations":)" + locations + R"(,"codes":{}})";
  };
  refused("x", "is not JSON");
  refused("[]", "expected an object");
  refused("{}", "there is no \"flags\"");
  refused(R"({"flags":[1],"locations":{},"codes":{}})", "expected text");
  refused(R"({"flags":{},"locations":{},"codes":{}})", "expected a list of keys");
  refused(with_locations("[]"), "expected a list of keys");
  refused(with_locations(R"({"1":2})"), "expected text");
  refused(with_locations(R"({"1":""})"), "expected one line of 1 to 1000 bytes");
  refused(with_locations(R"({"1":"a\u001b[2J"})"), "expected one line of 1 to 1000 bytes");
  refused(with_locations(R"({"1":")" + std::string(1001, 'a') + R"("})"), "expected one line of 1 to 1000 bytes");
  refused(with_locations(R"({"1024":"a"})"), "expected numbers of 0 to 1023");
  refused(with_locations(R"({"-1":"a"})"), "expected numbers of 0 to 1023");
  refused(with_locations(R"({"x":"a"})"), "expected numbers of 0 to 1023");
  refused(with_locations(R"({"1":"a","1":"b"})"), "twice");
  refused(R"({"flags":[""],"locations":{},"codes":{"16":"A"}})", "expected numbers of 0 to 15");
  refused(R"({"flags":[""],"locations":{},"codes":{"4":"A\n"}})", "expected one line of 1 to 64 bytes");
  for (const std::string codes : {R"({"1":"FINE"})", R"({"4":"NAN"})", R"({"4":"SAME","8":"SAME"})", R"({"4":"a b"})"})
    refused(R"({"flags":[""],"locations":{},"codes":)" + codes + "}", "of the codes 4, 8 and 12");
  CHECK(same_words(load_tensor(folder / "f.pt"), f));  // who asks for the tensor alone gets it
}

TEST_CASE("only flags are saved and loaded as flags") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(flags::save(folder / "f.pt", at::ones({2, 4}, at::kShort)), InputError);
  CHECK_THROWS_AS(flags::save(folder / "f.pt", at::ones({4}, at::kLong)), InputError);
  CHECK_THROWS_AS(flags::save(folder / "f.xyz", err::new_t(2)), FileError);
  save_tensor(folder / "z.pt", at::ones({2, 3}, at::kShort));
  CHECK_THROWS_AS(flags::load(folder / "z.pt"), InputError);
  CHECK_THROWS_AS(flags::load(folder / "none.pt"), FileError);
  CHECK_FALSE(std::filesystem::exists(folder / "f.pt"));
}

}  // namespace triage::test
