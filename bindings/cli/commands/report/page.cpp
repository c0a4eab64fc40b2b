#include "bindings/cli/commands/report/page.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "bindings/cli/commands/report/page_files.h"

namespace triage::cli {
namespace {

std::string_view page_file(std::string_view name) {
  for (const lua::PreludeFile& file : lua::report_page_files())
    if (file.name == name) return file.source;
  throw Error(fmt::format("the program has no {}", name));
}

/// JSON that may stand inside of <script>: no text in it ends that, or begins a comment of HTML.
std::string script_safe(std::string json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace

/// The places in page.html are filled from left to right: what fills one is not looked through for others.
std::string page_with(std::string_view title, std::string_view script, const nlohmann::ordered_json& data) {
  std::string_view rest = page_file("page.html");
  std::string page;
  const auto fill = [&](std::string_view place, std::string_view text) {
    const size_t at = rest.find(place);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + place.size());
  };
  fill("{{title}}", title);
  fill("{{style}}", page_file("page.css"));
  fill("{{data}}",
       script_safe(data.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace)));
  fill("{{script}}", std::string(page_file("elements.js")) + '\n' + std::string(page_file(script)));
  return page + std::string(rest);
}

}  // namespace triage::cli
