#include "runtime/backends/fused/loops/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/backends/fused/loops/expression.h"

namespace triage::fused {

using Kind = LoopValue::Kind;
using Time = Schedule::Time;

Schedule::Schedule(const Loops& loops, bool keeps) : loops_(loops), inlined_(inlined_values(loops)) {
  for (const bool parts : {true, false})
    for (size_t i = 0; i < loops.extents.size(); ++i)
      if ((loops.extents[i].segments < 0) == parts) order_.push_back(static_cast<int32_t>(i));
  for (size_t i = 0; i < loops.values.size(); ++i) {
    const Ref ref = static_cast<Ref>(i);
    if (at(ref).kind == Kind::reduce)
      last_pass_ = std::max(last_pass_, time_of_reduction(ref).pass);
    else if (!is_element(ref))
      last_pass_ = std::max(last_pass_, pass_of(ref));
  }
  for (const LoopOutput& output : loops.outputs)
    if (!is_segment_reduction(output.value)) last_pass_ = std::max(last_pass_, pass_of(output.value));
  if (keeps) choose_kept();
}

/// The earliest that loop `loop` (-1: code of the row) can have it.
Time Schedule::time(Ref ref, int32_t loop) const {
  const auto known = times_.find({ref, loop});
  if (known != times_.end()) return known->second;
  const LoopValue& value = at(ref);
  Time earliest;
  if (value.kind == Kind::reduce) {
    const Time run = time_of_reduction(ref);
    const bool here = value.place == Place::element && at(value.operands[0]).extent == loop;
    earliest = here ? Time{run.pass, run.step + 1} : Time{run.pass + 1, 0};
  } else {
    for (const Ref operand : value.operands) {
      const int32_t where = is_element(operand) && !is_element(ref) ? at(operand).extent : loop;
      earliest = std::max(earliest, time(operand, is_element(operand) ? where : -1));
    }
    if (!is_element(ref)) earliest.step = 0;
  }
  return times_[{ref, loop}] = earliest;
}

std::vector<Ref> Schedule::reductions(Time now, int32_t loop) const {
  std::vector<Ref> list;
  for (size_t i = 0; i < loops_.values.size(); ++i) {
    const Ref ref = static_cast<Ref>(i);
    if (at(ref).kind == Kind::reduce && at(at(ref).operands[0]).extent == loop && time_of_reduction(ref) == now)
      list.push_back(ref);
  }
  return list;
}

std::vector<Ref> Schedule::roots(Time now, int32_t loop) const {
  std::vector<Ref> list;
  for (const Ref ref : reductions(now, loop)) list.push_back(at(ref).operands[0]);
  for (size_t i = 0; i < loops_.outputs.size(); ++i)
    if (stores(i, now, loop)) list.push_back(loops_.outputs[i].value);
  for (const auto& [output, input] : early_)
    if (now == Time{} && at(input).extent == loop) list.push_back(input);
  for (const auto& [ref, memory] : kept_at(now, loop)) list.push_back(ref);
  return list;
}

std::vector<std::pair<Ref, std::string>> Schedule::kept_at(Time now, int32_t loop) const {
  std::vector<std::pair<Ref, std::string>> list;
  for (const auto& [ref, where] : kept_)
    if (!where.is_output() && !is_segment_reduction(ref) && at(ref).extent == loop && is_made(ref, now))
      list.emplace_back(ref, where.name);
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
  for (size_t i = 0; i < loops_.values.size(); ++i)
    if (const Ref ref = static_cast<Ref>(i); at(ref).kind == Kind::reduce && at(at(ref).operands[0]).extent == loop)
      at_least(time_of_reduction(ref));
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
  if (!is_element(root) || (!is_inlined(root) && !needed.insert(root).second)) return;
  if (is_segment_reduction(root) || is_kept_before(root, now, loop)) return;
  for (const Ref operand : at(root).operands) need(operand, now, loop, needed);
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

/// What is worth it and needed again after it was computed; and what is reduced over segments where another loop reads it.
void Schedule::choose_kept() {
  struct Uses {
    int first = 0, again = 0;  // where it would be kept, and where it would be read then
    bool other_pass = false;
  };
  std::map<Ref, Uses> uses;
  for (int pass = 0; pass <= last_pass_; ++pass)
    for (const int32_t loop : order_)
      for (int step = 0; step <= last_step(pass, loop); ++step)
        for (const Ref ref : needed_in({pass, step}, loop)) {
          if (is_local(ref, pass, loop)) continue;
          const int32_t own = at(ref).extent;
          const Time made = time(ref, own), now{pass, step};
          Uses& of = uses[ref];
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
    const auto output = std::find_if(loops_.outputs.begin(), loops_.outputs.end(),
                                     [ref = ref](const LoopOutput& o) { return o.value == ref; });
    if (output != loops_.outputs.end())
      kept_[ref] = {fmt::format("o{}", output - loops_.outputs.begin())};
    else
      kept_[ref] = {fmt::format("k{}", scratch_rows_++),
                    extent(at(ref).extent).segments >= 0 && !of.other_pass && !is_one_loop(ref)};
  }
}

/// Whether a loop over all positions of a row can compute this element, whichever segment they are in.
bool Schedule::is_one_loop(Ref ref) const {
  const LoopValue& value = at(ref);
  return value.kind != Kind::reduce && std::all_of(value.operands.begin(), value.operands.end(), [&](Ref operand) {
           return !is_element(operand) || (at(operand).extent == value.extent && is_one_loop(operand));
         });
}

// --- an output in the place of an input --------------------------------------------------------------------------------

std::vector<InPlace> Schedule::in_place_choices() const {
  std::vector<InPlace> choices;
  for (const bool selections : {true, false})
    for (size_t output = 0; output < loops_.outputs.size(); ++output)
      for (size_t slot = 0; slot < loops_.inputs.size(); ++slot)
        if (const InPlace choice{output, slot}; can_be(choice) && is_selection(choice) == selections)
          choices.push_back(choice);
  return choices;
}

Ref Schedule::input_of(size_t slot) const {
  for (size_t i = 0; i < loops_.values.size(); ++i)
    if (at(static_cast<Ref>(i)).kind == Kind::input && at(static_cast<Ref>(i)).slot == static_cast<int32_t>(slot))
      return static_cast<Ref>(i);
  return -1;
}

bool Schedule::can_be(const InPlace& choice) const {
  const TensorForm &out = loops_.outputs[choice.output].form, &in = loops_.inputs[choice.slot].form;
  if (out.kind != TensorForm::Kind::element || in.kind != out.kind || in.dtype != out.dtype ||
      in.extent != out.extent || in.rank != out.rank || in.trailing != out.trailing)
    return false;
  for (size_t slot = 0; slot < loops_.inputs.size(); ++slot)
    if (slot != choice.slot && loops_.inputs[slot].argument == loops_.inputs[choice.slot].argument) return false;
  return !is_read_after(input_of(choice.slot), choice.output);
}

bool Schedule::is_read_after(Ref input, size_t output) const {
  const Ref written = loops_.outputs[output].value;
  if (is_segment_reduction(written)) return true;
  const int32_t own = at(written).extent;
  const Time when = time(written, own);
  for (int pass = when.pass; pass <= last_pass_; ++pass)
    for (const int32_t loop : order_)
      for (int step = 0; step <= last_step(pass, loop); ++step) {
        const Time now{pass, step};
        const bool before = loop == own && (now < when || now == when);
        if (!before && needed_in(now, loop).count(input)) return true;
      }
  for (size_t i = 0; i < loops_.values.size(); ++i) {  // these look at their row again
    const Ref ref = static_cast<Ref>(i);
    std::set<Ref> needed;
    if (at(ref).kind == Kind::classify && pass_of(ref) > when.pass)
      need(at(ref).operands[0], {pass_of(ref), 0}, at(at(ref).operands[0]).extent, needed);
    if (needed.count(input)) return true;
  }
  return false;
}

bool Schedule::selects_rows(Ref ref) const {
  const LoopValue& value = at(ref);
  return value.is(Opcode::pick) && at(value.operands[0]).place == Place::row && is_one_loop(ref);
}

/// The output is the input itself, but in rows where a condition holds.
bool Schedule::is_selection(const InPlace& choice) const {
  const Ref ref = loops_.outputs[choice.output].value, input = input_of(choice.slot);
  return selects_rows(ref) && (at(ref).operands[1] == input || at(ref).operands[2] == input);
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

bool Schedule::is_changed_later(size_t i) const {
  return early_.count(i) || (in_place_ && in_place_->output == i && is_selection(*in_place_));
}

}  // namespace triage::fused
