#include "bindings/lua/rewriter/syntax/chunk_name.h"

namespace triage::lua::rewriter {
namespace {

// Lua's own buffer for this (LUA_IDSIZE), its final zero included: messages must agree to the byte.
constexpr size_t kDisplaySize = 60;
constexpr std::string_view kDots = "...";
constexpr std::string_view kOpen = "[string \"";
constexpr std::string_view kClose = "\"]";

std::string shorten_text(std::string_view text) {
  const size_t room = kDisplaySize - kOpen.size() - kDots.size() - kClose.size() - 1;
  const size_t newline = text.find('\n');
  std::string shown(kOpen);
  if (text.size() < room && newline == std::string_view::npos) {
    shown += text;
  } else {
    if (newline != std::string_view::npos) text = text.substr(0, newline);
    shown += text.substr(0, room);
    shown += kDots;
  }
  shown += kClose;
  return shown;
}

}  // namespace

std::string display_name(std::string_view chunk_name) {
  if (const size_t zero = chunk_name.find('\0'); zero != std::string_view::npos)
    chunk_name = chunk_name.substr(0, zero);
  if (chunk_name.empty() || (chunk_name[0] != '=' && chunk_name[0] != '@')) return shorten_text(chunk_name);
  const std::string_view name = chunk_name.substr(1);
  if (chunk_name.size() <= kDisplaySize) return std::string(name);
  if (chunk_name[0] == '=') return std::string(name.substr(0, kDisplaySize - 1));
  const size_t kept = kDisplaySize - kDots.size() - 1;
  return std::string(kDots) + std::string(name.substr(name.size() - kept));
}

}  // namespace triage::lua::rewriter
