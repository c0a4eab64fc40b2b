#include <fmt/format.h>
#include <triage/front_end.h>

namespace triage {
namespace {

std::string text_of(const c10::Scalar& bound) {
  return bound.isFloatingPoint() ? fmt::format("{}", bound.toDouble()) : fmt::format("{}", bound.toLong());
}

}  // namespace

std::string OutputRange::text() const {
  std::string text;
  if (min && max) text = text_of(*min) + " to " + text_of(*max);
  if (min && !max) text = "at least " + text_of(*min);
  if (max && !min) text = "at most " + text_of(*max);
  if (finite && !(min && max)) text += text.empty() ? "finite" : ", finite";
  return text;
}

}  // namespace triage
