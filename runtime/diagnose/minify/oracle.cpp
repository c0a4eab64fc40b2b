#include "runtime/diagnose/minify/oracle.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <chrono>
#include <regex>

#include "runtime/backends/eager.h"
#include "runtime/diagnose/program_run.h"

namespace triage::diagnose {
namespace {

using Clock = std::chrono::steady_clock;

/// A message without what differs between a graph and a part of it: places, names of values, numbers, sizes.
std::string without_details(const std::string& message) {
  struct DetailPatterns {
    std::regex place{R"(\S+\.lua:\d+: )"}, name{R"re(%("[^"]*"|\w+))re"}, graph{"graph `[^`]*`"},
        number{R"([-+]?\d+(\.\d+)?(e[-+]?\d+)?)"}, list{R"(\[[#, ]*\]|#(x#)+)"};
  };
  static const auto& parts = *new DetailPatterns;
  std::string text = message.substr(0, message.find('\n'));
  text = std::regex_replace(text, parts.place, "");
  text = std::regex_replace(text, parts.name, "%");
  text = std::regex_replace(text, parts.graph, "graph");
  text = std::regex_replace(text, parts.number, "#");
  return std::regex_replace(text, parts.list, "#");
}

constexpr const char* of_memory = "memory";

std::string kind_of(const ProgramFailure& failure) {
  if (failure.stage == ProgramFailure::Stage::numbers) return "numbers";
  for (const char* words : {"not enough memory", "bad_alloc", "can't allocate memory"})
    if (failure.message.find(words) != std::string::npos) return of_memory;
  return fmt::format("{}: {}", static_cast<int>(failure.stage), without_details(failure.message));
}

}  // namespace

/// The child reports lines: whether eager fails, then the failure's kind and text, where there is one.
Oracle::Verdict Oracle::judge(const GraphProgram& candidate, const ChildLimits& limits) {
  ++candidates_;
  const auto work = [&]() -> std::string {
    try {
      GraphProgram plain = candidate.clone();
      plain.check = ProgramCheck::errors;
      const bool eager_fails = run_program(plain, compile_eager).failure.has_value();
      const ProgramOutcome outcome = run_program(candidate, backend_);
      std::string text = eager_fails ? "1" : "0";
      if (outcome.failure) text += kind_of(*outcome.failure) + '\0' + outcome.failure->text();
      return text;
    } catch (const std::exception& error) {
      return std::string("1inputs: ") + '\0' + error.what();
    }
  };
  const ChildEnd end = run_in_child(work, limits);
  if (end.kind !=
      ChildEnd::Kind::finished)  // the result is said to hang for the time that the user named: see `confirm`
    return {fmt::format("{} {}", static_cast<int>(end.kind), end.signal), describe(end, options_.child), false, false,
            end.kind == ChildEnd::Kind::timed_out};
  Verdict verdict;
  if (end.output.empty()) return {"no report", "ends the process", false, false, false};
  verdict.eager_fails = end.output[0] == '1';
  const size_t zero = end.output.find('\0');
  if (zero == std::string::npos) return verdict;
  verdict.kind = end.output.substr(1, zero - 1);
  verdict.text = end.output.substr(zero + 1);
  return verdict;
}

Oracle::Oracle(const GraphProgram& program, const Backend& backend, const MinifierOptions& options)
    : backend_(backend),
      options_(options),
      limits_(options.child),
      end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds))) {
  const auto start = Clock::now();
  eager_fails_ = !runs_with_eager(program);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const Verdict verdict = judge(program, limits_);
  if (verdict.kind.empty())
    throw InputError(fmt::format("the program does not fail: backend `{}` runs the graph{}", program.backend,
                                 program.check == ProgramCheck::numbers
                                     ? " and its numbers are as good as those of eager"
                                     : "; with check = \"numbers\" (--numbers) its results are checked as well"));
  kind_ = verdict.kind;
  harmless_ = verdict.reported && kind_ != of_memory;
  failure_ = verdict.text;
  // Candidates that hang are waited for by what a run takes, or the search would take minutes for each dozen of them.
  if (verdict.timed_out) limits_.seconds = std::min(limits_.seconds, std::max(1.0, 20 * seconds));
}

bool Oracle::fails_the_same(const GraphProgram& candidate) {
  if (out_of_time()) return false;
  const Verdict verdict = judge(candidate, limits_);
  if (verdict.kind != kind_ || (verdict.eager_fails && !eager_fails_)) return false;
  if (!verdict.reported && !eager_fails_ && !runs_with_eager(candidate)) return false;
  failure_ = verdict.text;
  return true;
}

bool Oracle::confirm(const GraphProgram& program) {
  const auto start = Clock::now();
  if (judge(program, options_.child).kind == kind_) return true;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  limits_.seconds = std::min(options_.child.seconds, std::max(limits_.seconds, 2 * seconds));
  return false;
}

bool Oracle::runs_with_eager(const GraphProgram& program) const {
  GraphProgram plain = program.clone();
  plain.check = ProgramCheck::errors;
  const auto work = [&]() -> std::string {
    try {
      return run_program(plain, compile_eager).failure ? "fails" : "runs";
    } catch (const std::exception&) {
      return "fails";
    }
  };
  return run_in_child(work, limits_).output == "runs";
}

bool Oracle::out_of_time() const { return Clock::now() > end_; }

}  // namespace triage::diagnose
