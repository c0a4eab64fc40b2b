// Codes, severities, domains and locations are types of their own: what would take one for another does not compile.
#include "levels.h"

#include <triage/error_report.h>

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace triage::test {
namespace {

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};
static_assert(Comparable<Code, Code>);
static_assert(!Comparable<Code, Severity> && !Comparable<Code, Domain> && !Comparable<Severity, Domain>);
static_assert(!Comparable<Code, int> && !Comparable<Severity, int64_t>);

template <class T>
inline constexpr bool is_number = std::is_convertible_v<T, int64_t> || std::is_convertible_v<int64_t, T>;
static_assert(!is_number<Code> && !is_number<Severity> && !is_number<Domain>);

template <class T>
concept Pushed = requires(const Tensor& f, T code) {
  err::push(f, code, 1);
};
static_assert(Pushed<Code> && Pushed<Tensor>);
static_assert(!Pushed<Severity> && !Pushed<Domain> && !Pushed<int>);
template <class T>
concept Severe = requires(const Tensor& f, T severity) {
  err::push_scalar(f, err::nan, 1, {severity});
};
static_assert(Severe<Severity>);
static_assert(!Severe<Code> && !Severe<int>);

// One order of arguments: the flags first.
template <class A, class B>
concept Found = requires(A a, B b) {
  find(a, b);
};
template <class A, class B>
concept Had = requires(A a, B b) {
  err::has_code(a, b);
};
static_assert(Found<Tensor, Code> && Had<Tensor, Code>);
static_assert(!Found<Code, Tensor> && !Had<Code, Tensor> && !Found<Tensor, Severity> && !Had<Tensor, Domain>);

// A path is registered for the whole process: that must be written down.
template <class T>
inline constexpr bool registers_silently = std::is_convertible_v<T, Location>;
static_assert(!registers_silently<const char*> && !registers_silently<std::string>);
static_assert(!registers_silently<std::string_view> && !registers_silently<const char (&)[5]>);
static_assert(std::is_constructible_v<Location, const char*> && std::is_constructible_v<Location, std::string>);
static_assert(std::is_convertible_v<int, Location> && std::is_convertible_v<int64_t, Location>);
template <class T>
concept Located = requires(const Tensor& z, T location) {
  flag_nan(z, location);
};
static_assert(Located<int> && Located<Location> && !Located<const char*> && !Located<std::string>);

}  // namespace

TEST_CASE("numbers become codes, severities and domains by name, and back") {
  for (int64_t number = 0; number < 16; ++number) CHECK(to_int(code_from(number)) == number);
  for (int64_t number = 0; number < 4; ++number) {
    CHECK(to_int(severity_from(number)) == number);
    CHECK(to_int(domain_from(number)) == number);
  }
  CHECK(code_from(1) == err::nan);
  CHECK(severity_from(3) == err::critical);
  for (const int64_t number : {int64_t{-1}, int64_t{16}, int64_t{1} << 40}) {
    CHECK_THROWS_AS(code_from(number), ConfigError);
    CHECK_THROWS_AS(severity_from(number), ConfigError);
    CHECK_THROWS_AS(domain_from(number), ConfigError);
  }
  CHECK_THROWS_AS(severity_from(4), ConfigError);
}

TEST_CASE("a host may use the free codes for errors of its own") {
  const Code own = code_from(12);
  const Tensor f = err::push(err::new_t(2), own, 3, {.severity = err::critical});
  CHECK(err::has_code(f, own).all().item<bool>());
  CHECK(flags::unpack(f, 0)[0].code_name == "CODE_12");
  const CodeNames names{{code_from(4), "STALE"}, {own, "MISSING"}};
  CHECK(code_name(own, names) == "MISSING");
  CHECK(code_name(err::nan, names) == "NAN");
  CHECK_THROWS_AS(code_name(static_cast<Code>(16), names), ConfigError);
  const InspectOptions named{.codes = names};
  CHECK(flags::unpack(f, 0, named)[0].code_name == "MISSING");
  CHECK(flags::unpack_all(f, named)[1][0].code_name == "MISSING");
  CHECK(flags::to_table(f, named)[1].error.code_name == "MISSING");
  CHECK(flags::summary(f, named)[ErrorLocation::name(3)]["MISSING"] == 2);
  CHECK(flags::repr(f, named).find("2xMISSING @ ") != std::string::npos);
  CHECK(flags::pretty_print(f, 0, named).find("CRITICAL | RUNTIME.MISSING | @ ") != std::string::npos);
  ErrorReport report = report_of(f, {.codes = names});
  CHECK(report.counts[0].code_name == "MISSING");
  CHECK(report.examples[0].text.find("MISSING @ ") == 0);
  report += report_of(f, {.codes = {{own, "GONE"}}});  // of another policy: not the same kind of error
  report += report_of(err::push(err::new_t(1), err::nan, 3), {.codes = names});
  REQUIRE(report.counts.size() == 3);
  CHECK(report.counts[0].code_name.empty());  // NAN is NAN for everybody
  CHECK(report.counts[1].code_name == "GONE");
  CHECK(report.text().find("CRITICAL MISSING @ ") != std::string::npos);
  CHECK(report.text().find("CRITICAL GONE @ ") != std::string::npos);
}

TEST_CASE("to validate a configuration changes nothing in the process") {
  const ErrorConfig other{.num_slots = 22222};
  const Tensor f = at::zeros({3, other.num_words()}, at::kLong);
  other.validate();
  CHECK_THROWS_AS(err::is_ok(f), InputError);  // nothing has made flags of this width
  err::new_t(1, {.config = other});
  CHECK(err::is_ok(f).all().item<bool>());
}

}  // namespace triage::test
