// flags.*: what happened, at the boundary. Everything walks over the errors once; words without errors cost one look.
#include <ATen/ATen.h>
#include <runtime/compat/readable_values.h>
#include <runtime/flags/forms.h>
#include <runtime/flags/records/errors.h>
#include <triage/error_report.h>
#include <triage/flags.h>
#include <triage/positions.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace triage::flags {
namespace {

// Flags of the configuration, which is known from then on, of the global one where none is given, or of another that is
// known.
void inspected(const char* op, const Tensor& f, const InspectOptions& options) {
  check::flags(op, f);
  KnownForms::add(options.config);
  check::known(op, f);
}

Tensor on_cpu(const char* op, const Tensor& f, const InspectOptions& options) {
  inspected(op, f, options);
  return compat::readable_values(f);
}

Code code_of(uint16_t slot) { return static_cast<Code>(slot >> CODE_SHIFT & CODE_MASK); }
int64_t location_of(uint16_t slot) { return slot >> LOCATION_SHIFT; }

const ErrorConfig& config_of(const InspectOptions& options) { return options.config ? *options.config : get_config(); }

std::string dropped_text(int64_t number, bool at_least) {
  return (at_least ? "at least " : "") + std::to_string(number) + " dropped";
}

UnpackedError unpacked(int64_t sample, uint16_t slot, bool overflow, const InspectOptions& options) {
  const auto severity = static_cast<Severity>(slot & SEVERITY_MASK);
  const int64_t location = location_of(slot);
  UnpackedError error{
      severity,
      code_of(slot),
      location,
      severity_name(severity),
      code_name(code_of(slot), options.codes),
      overflow ? "(" + dropped_text(location, location == MAX_DROPPED) + ")" : ErrorLocation::name(location)};
  if (!overflow && !options.positions.empty())
    error.position = find_position(options.positions, error.location_name, sample, error.code);
  return error;
}

int64_t checked_sample(const char* op, const Tensor& f, int64_t sample) {
  const int64_t count = f.size(0);
  if (sample < -count || sample >= count) {
    throw InputError(std::string("flags.") + op + ": there is no sample " + std::to_string(sample) + " in a batch of " +
                     std::to_string(count) + ".");
  }
  return sample < 0 ? sample + count : sample;
}

// Errors counted by location and code, both in the order in which they are first met.
struct ErrorCounts {
  struct LocationErrors {
    int64_t location;
    std::vector<std::pair<Code, int64_t>> codes;  // code, how often
  };
  ErrorCounts(const Tensor& contiguous, const InspectOptions& options) {
    const Overflow overflow(contiguous, config_of(options));
    const int64_t last = last_slot(contiguous, config_of(options));
    std::array<int, ErrorLocation::MAX_LOCATION_ID + 1> index{};  // of a location in `places`, 1-based
    each_error(contiguous, 0, contiguous.size(0), [&](int64_t, int64_t at, uint16_t slot) {
      full += at == last;
      if (overflow.is(at, slot)) {
        dropped += location_of(slot);
        more_dropped |= location_of(slot) == MAX_DROPPED;
        return;
      }
      int& known = index[static_cast<size_t>(location_of(slot))];
      if (!known) {
        places.push_back({location_of(slot), {}});
        known = static_cast<int>(places.size());
      }
      add(places[static_cast<size_t>(known) - 1].codes, code_of(slot), 1);
      ++total;
    });
  }
  static void add(std::vector<std::pair<Code, int64_t>>& codes, Code code, int64_t count) {
    for (auto& entry : codes) {
      if (entry.first == code) {
        entry.second += count;
        return;
      }
    }
    codes.emplace_back(code, count);
  }
  // Codes by falling count; of equals, the one met first.
  std::vector<std::pair<Code, int64_t>> codes() const {
    std::vector<std::pair<Code, int64_t>> all;
    for (const LocationErrors& place : places) {
      for (const auto& [code, count] : place.codes) add(all, code, count);
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return all;
  }
  std::vector<LocationErrors> places;
  int64_t total = 0;
  int64_t dropped = 0;        // what overflow records count
  int64_t full = 0;           // records without a free slot
  bool more_dropped = false;  // some record counts no further
};

}  // namespace

std::vector<UnpackedError> unpack(const Tensor& f, int64_t sample, const InspectOptions& options) {
  inspected("flags.unpack", f, options);
  const int64_t row = checked_sample("unpack", f, sample);
  const auto one = compat::readable_values(f.narrow(0, row, 1));
  const Overflow overflow(one, config_of(options));
  std::vector<UnpackedError> errors;
  each_error(one, 0, 1, [&](int64_t, int64_t index, uint16_t slot) {
    errors.push_back(unpacked(row, slot, overflow.is(index, slot), options));
  });
  return errors;
}

std::vector<std::vector<UnpackedError>> unpack_all(const Tensor& f, const InspectOptions& options) {
  const auto all = on_cpu("flags.unpack_all", f, options);
  const Overflow overflow(all, config_of(options));
  std::vector<std::vector<UnpackedError>> samples(static_cast<size_t>(all.size(0)));
  each_error(all, 0, all.size(0), [&](int64_t sample, int64_t index, uint16_t slot) {
    samples[static_cast<size_t>(sample)].push_back(unpacked(sample, slot, overflow.is(index, slot), options));
  });
  return samples;
}

Summary summary(const Tensor& f, const InspectOptions& options) {
  const ErrorCounts counts(on_cpu("flags.summary", f, options), options);
  Summary result;
  for (const auto& place : counts.places) {
    auto& codes = result[ErrorLocation::name(place.location)];
    for (const auto& [code, count] : place.codes) codes[code_name(code, options.codes)] += count;
  }
  if (counts.dropped) result[DROPPED][code_name(err::unknown)] += counts.dropped;
  return result;
}

std::string repr(const Tensor& f, const InspectOptions& options) {
  const ErrorCounts counts(on_cpu("flags.repr", f, options), options);
  const std::string head = "ErrorFlags(" + std::to_string(f.size(0)) + " samples, ";
  std::string tail = ")";
  if (counts.dropped)
    tail = "; " + dropped_text(counts.dropped, counts.more_dropped) + ")";
  else if (counts.full)
    tail = "; " + std::to_string(counts.full) + (counts.full == 1 ? " record is full)" : " records are full)");
  if (!counts.total) return head + "no errors" + tail;
  std::string codes;
  for (const auto& [code, count] : counts.codes()) {
    codes += (codes.empty() ? "" : ", ") + std::to_string(count) + "x" + code_name(code, options.codes);
  }
  std::set<std::string> names;
  for (const auto& place : counts.places) names.insert(ErrorLocation::name(place.location));
  std::string where;
  size_t shown = 0;
  for (const auto& name : names) {
    if (shown == 3) break;
    where += (shown++ ? ", " : "") + name;
  }
  if (names.size() > shown) where += " +" + std::to_string(names.size() - shown) + " more";
  return head + std::to_string(counts.total) + " errors: " + codes + " @ " + where + tail;
}

std::string pretty_print(const Tensor& f, int64_t sample, const InspectOptions& options) {
  const auto errors = unpack(f, sample, options);
  if (errors.empty()) return "[OK] No errors";
  std::string text = "Found " + std::to_string(errors.size()) + " error(s):";
  for (size_t i = 0; i < errors.size(); ++i) {
    const auto& e = errors[i];
    text += "\n  [" + std::to_string(i) + "] " + e.severity_name + " | " + domain_name(domain_of(e.code)) + "." +
            e.code_name + " | @ " + e.location_name;
    if (!e.position.empty()) text += " at " + position_text(e.position);
  }
  return text;
}

std::vector<TableRow> to_table(const Tensor& f, const InspectOptions& options) {
  const auto all = on_cpu("flags.to_table", f, options);
  const Overflow overflow(all, config_of(options));
  std::vector<TableRow> table;
  each_error(all, 0, all.size(0), [&](int64_t sample, int64_t index, uint16_t slot) {
    table.push_back({sample, index, unpacked(sample, slot, overflow.is(index, slot), options)});
  });
  return table;
}

}  // namespace triage::flags

namespace triage {

ErrorReport report_of(const at::Tensor& f, const ReportOptions& options) {
  const InspectOptions given{options.config, options.codes, {}};
  const auto all = flags::on_cpu("report_of", f, given);
  const flags::Overflow overflow(all, flags::config_of(given));
  ErrorReport report;
  report.samples = all.size(0);
  std::map<uint16_t, int64_t> counts;  // by slot
  int64_t last = -1;
  flags::each_error(all, 0, all.size(0), [&](int64_t sample, int64_t at, uint16_t slot) {
    const bool begins = sample != last;
    last = sample;
    report.flagged += begins;
    const bool dropped = overflow.is(at, slot);
    if (dropped)
      report.dropped += flags::location_of(slot);
    else
      ++counts[slot];
    if (begins && report.examples.size() < options.examples) report.examples.push_back({0, sample, ""});
    if (report.examples.empty() || report.examples.back().sample != sample) return;
    const flags::UnpackedError error = flags::unpacked(sample, slot, dropped, given);
    std::string& text = report.examples.back().text;
    text += (text.empty() ? "" : ", ") + (dropped ? "" : error.code_name + " @ ") + error.location_name;
  });
  ErrorReport counted;  // adding joins those of one location that slots tell apart
  for (const auto& [slot, count] : counts) {
    const flags::UnpackedError error = flags::unpacked(0, slot, false, given);
    const bool named = error.code_name != code_name(error.code);
    counted.counts.push_back(
        {error.location_name, error.code, error.severity, count, named ? error.code_name : std::string()});
  }
  report += counted;
  return report;
}

}  // namespace triage
