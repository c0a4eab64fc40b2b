#include "runtime/backends/fused/loops/schedule.h"

#include <algorithm>

#include "runtime/backends/fused/loops/expression.h"

namespace triage::fused {

using Kind = LoopValue::Kind;
using Time = Schedule::Time;

Schedule::Schedule(const Loops& loops, bool keeps) : loops_(loops), inlined_(inlined_values(loops)) {
  for (const bool parts : {true, false})
    for (size_t i = 0; i < loops.extents.size(); ++i)
      if ((loops.extents[i].segments < 0) == parts) order_.push_back(static_cast<int32_t>(i));
  find_times();
  find_one_loops();
  for (size_t i = 0; i < loops.values.size(); ++i) {
    const Ref ref = static_cast<Ref>(i);
    if (at(ref).kind == Kind::reduce) {
      const Time run = time_of_reduction(ref);
      reductions_[{at(at(ref).operands[0]).extent, run.pass, run.step}].push_back(ref);
      last_pass_ = std::max(last_pass_, run.pass);
    } else if (!is_element(ref)) {
      last_pass_ = std::max(last_pass_, pass_of(ref));
    }
  }
  for (const LoopOutput& output : loops.outputs)
    if (!is_segment_reduction(output.value)) last_pass_ = std::max(last_pass_, pass_of(output.value));
  if (keeps) choose_kept();
}

/// Operands come before what reads them, so each is found once, for all who ask.
void Schedule::find_times() {
  const auto loops = static_cast<int32_t>(loops_.extents.size());
  times_.reserve(loops_.values.size() * static_cast<size_t>(loops + 1));
  for (size_t i = 0; i < loops_.values.size(); ++i)
    for (int32_t loop = -1; loop < loops; ++loop) times_.push_back(earliest(static_cast<Ref>(i), loop));
}

Time Schedule::time(Ref ref, int32_t loop) const {
  return times_[static_cast<size_t>(ref) * (loops_.extents.size() + 1) + static_cast<size_t>(loop + 1)];
}

/// When loop `loop` (-1: code of the row) can have it.
Time Schedule::earliest(Ref ref, int32_t loop) const {
  const LoopValue& value = at(ref);
  Time earliest;
  if (value.kind == Kind::reduce) {
    const Time run = time_of_reduction(ref);
    const bool here = value.place == Place::element && at(value.operands[0]).extent == loop;
    return here ? Time{run.pass, run.step + 1} : Time{run.pass + 1, 0};
  }
  for (const Ref operand : value.operands) {
    const int32_t where = is_element(operand) && !is_element(ref) ? at(operand).extent : loop;
    earliest = std::max(earliest, time(operand, is_element(operand) ? where : -1));
  }
  if (!is_element(ref)) earliest.step = 0;
  return earliest;
}

void Schedule::find_one_loops() {
  for (const LoopValue& value : loops_.values)
    one_loop_.push_back(value.kind != Kind::reduce &&
                        std::all_of(value.operands.begin(), value.operands.end(), [&](Ref operand) {
                          return !is_element(operand) || (at(operand).extent == value.extent && is_one_loop(operand));
                        }));
}

const std::vector<Ref>& Schedule::reductions(Time now, int32_t loop) const {
  static const auto& none = *new std::vector<Ref>;
  const auto found = reductions_.find({loop, now.pass, now.step});
  return found == reductions_.end() ? none : found->second;
}

std::vector<Ref> Schedule::roots(Time now, int32_t loop) const {
  std::vector<Ref> list;
  for (const Ref ref : reductions(now, loop)) list.push_back(at(ref).operands[0]);
  for (size_t i = 0; i < loops_.outputs.size(); ++i)
    if (stores(i, now, loop)) list.push_back(loops_.outputs[i].value);
  for (const auto& [output, input] : early_)
    if (now == Time{} && at(input).extent == loop) list.push_back(input);
  for (const Ref ref : kept_at(now, loop)) list.push_back(ref);
  return list;
}

std::vector<Ref> Schedule::kept_at(Time now, int32_t loop) const {
  std::vector<Ref> list;
  for (const auto& [ref, where] : kept_)
    if (!where.output && !is_segment_reduction(ref) && at(ref).extent == loop && is_made(ref, now)) list.push_back(ref);
  return list;
}

bool Schedule::stores(size_t i, Time now, int32_t loop) const {
  const Ref ref = loops_.outputs[i].value;
  return is_element(ref) && at(ref).extent == loop && !is_segment_reduction(ref) && !is_changed_later(i) &&
         time(ref, loop) == now;
}

int Schedule::last_step(int pass, int32_t loop) const {
  int last = 0;
  const auto at_least = [&](Time when) {
    if (when.pass == pass) last = std::max(last, when.step);
  };
  if (extent(loop).segments < 0) return last;
  for (auto run = reductions_.lower_bound({loop, pass, 0});
       run != reductions_.end() && std::get<0>(run->first) == loop && std::get<1>(run->first) == pass; ++run)
    at_least({pass, std::get<2>(run->first)});
  for (const LoopOutput& output : loops_.outputs)
    if (at(output.value).extent == loop) at_least(time(output.value, loop));
  for (const auto& [ref, where] : kept_)
    if (at(ref).extent == loop) at_least(time(ref, loop));
  return last;
}

bool Schedule::has_segments(int pass, int32_t loop) const {
  if (extent(loop).segments < 0) return false;
  for (int step = 0; step <= last_step(pass, loop); ++step) {
    for (const Ref ref : reductions({pass, step}, loop))
      if (is_element(ref)) return true;
    for (const Ref ref : needed_in({pass, step}, loop))
      if (at(ref).extent != loop || (kept_.count(ref) && kept_.at(ref).segment)) return true;
  }
  return false;
}

bool Schedule::is_local(Ref ref, int pass, int32_t loop) const {
  return is_segment_reduction(ref) && at(at(ref).operands[0]).extent == loop && time_of_reduction(ref).pass == pass;
}

bool Schedule::is_kept_before(Ref ref, Time now, int32_t loop) const {
  if (!kept_.count(ref) || is_local(ref, now.pass, loop)) return false;
  if (is_segment_reduction(ref)) return true;
  const int32_t own = at(ref).extent;
  const Time made = time(ref, own);
  return own == loop ? made < now : made.pass <= now.pass;  // loops over parts come first
}

void Schedule::need(Ref root, Time now, int32_t loop, std::set<Ref>& needed) const {
  std::vector<Ref> left{root};
  while (!left.empty()) {
    const Ref ref = left.back();
    left.pop_back();
    if (!is_element(ref) || (!is_inlined(ref) && !needed.insert(ref).second))
      continue;  // one reader has what is inlined
    if (is_segment_reduction(ref) || is_kept_before(ref, now, loop)) continue;
    for (const Ref operand : at(ref).operands) left.push_back(operand);
  }
}

std::set<Ref> Schedule::needed_in(Time now, int32_t loop) const {
  std::set<Ref> needed;
  for (const Ref root : roots(now, loop)) need(root, now, loop, needed);
  return needed;
}

std::set<Ref> Schedule::needed_in(int pass, int32_t loop) const {
  std::set<Ref> needed;
  for (int step = 0; step <= last_step(pass, loop); ++step) needed.merge(needed_in({pass, step}, loop));
  return needed;
}

/// What is worth it and needed again after it was computed; and what is reduced over segments where another loop reads
/// it.
void Schedule::choose_kept() {
  struct UseCounts {
    int first = 0, again = 0;  // where it would be kept, and where it would be read then
    bool other_pass = false;
  };
  std::map<Ref, UseCounts> uses;
  for (int pass = 0; pass <= last_pass_; ++pass)
    for (const int32_t loop : order_)
      for (int step = 0; step <= last_step(pass, loop); ++step)
        for (const Ref ref : needed_in({pass, step}, loop)) {
          if (is_local(ref, pass, loop)) continue;
          const int32_t own = at(ref).extent;
          const Time made = time(ref, own), now{pass, step};
          UseCounts& of = uses[ref];
          if (loop == own && made == now && !is_segment_reduction(ref))
            ++of.first;
          else if (loop == own || is_segment_reduction(ref) || made.pass <= pass)
            of.again += loop != own && extent(loop).positions == own ? 2 : 1;  // for each segment again
          of.other_pass |= pass != made.pass;
        }
  for (size_t i = 0; i < loops_.outputs.size(); ++i)
    if (const Ref ref = loops_.outputs[i].value; is_segment_reduction(ref)) ++uses[ref].again;
  for (const auto& [ref, of] : uses) {
    const bool worth = at(ref).expensive && of.first + of.again >= 2 && of.again > 0;
    if (!(is_segment_reduction(ref) ? of.again > 0 : worth)) continue;
    const bool output = std::any_of(loops_.outputs.begin(), loops_.outputs.end(),
                                    [ref = ref](const LoopOutput& o) { return o.value == ref; });
    kept_[ref] = {output, !output && extent(at(ref).extent).segments >= 0 && !of.other_pass && !is_one_loop(ref)};
  }
}

bool Schedule::selects_rows(Ref ref) const {
  const LoopValue& value = at(ref);
  return value.is(Opcode::pick) && at(value.operands[0]).place == Place::row && is_one_loop(ref);
}

void Schedule::choose_early() {
  for (size_t i = 0; i < loops_.outputs.size(); ++i) {
    const Ref ref = loops_.outputs[i].value;
    const LoopValue& value = at(ref);
    if (!is_element(ref) || pass_of(ref) == 0 || !selects_rows(ref)) continue;
    const Ref input = value.operands[2];
    if (at(input).kind == Kind::input && is_element(input) && at(input).dtype == value.dtype &&
        needed_in({0, 0}, value.extent).count(input))
      early_[i] = input;
  }
}

}  // namespace triage::fused
