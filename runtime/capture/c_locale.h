#pragma once
#include "runtime/capture/context.h"

#include <locale.h>

/// The host may set any locale, in any thread and at any time (`setlocale`). Lua and parts of the C library that it
/// uses read and write numbers, classify characters and compare strings by it. What scripts do must not depend on that.
namespace triage::capture {

/// While alive, the C locale is that of this thread, whatever the process has.
class CLocale {
 public:
  CLocale() noexcept
      : before_(::uselocale(c())), outer_(context.c_locale), host_(before_ == c() && outer_ ? outer_->host_ : before_) {
    context.c_locale = this;
  }
  ~CLocale() {
    context.c_locale = outer_;
    ::uselocale(before_);
  }
  CLocale(const CLocale&) = delete;
  CLocale& operator=(const CLocale&) = delete;

 private:
  friend class HostLocale;
  static locale_t c() noexcept {
    static const auto locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return locale;
  }

  const locale_t before_;
  const CLocale* const outer_;
  const locale_t host_;
};

/// While alive, the locale is again the one that the host had: code of the host runs, which a script calls.
class HostLocale {
 public:
  HostLocale() noexcept : before_(::uselocale(context.c_locale ? context.c_locale->host_ : nullptr)) {}
  ~HostLocale() { ::uselocale(before_); }
  HostLocale(const HostLocale&) = delete;
  HostLocale& operator=(const HostLocale&) = delete;

 private:
  const locale_t before_;
};

}  // namespace triage::capture
