#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "tests/policy/lives/host.h"

namespace lives {

/// Numbers that a generator chooses and makes smaller: which step, and with what.
using Step = std::array<uint8_t, 3>;
using Steps = std::vector<Step>;

struct Kind {
  bool is_bundle = false;
  size_t count = 1;  // of policies
  Options options;
};

/// What there is outside of a process: of it alone depends what a restart finds.
struct Outside {
  Disk disk;
  Kept kept;
};

/// Takes steps in the model, and in a host if there is one, whose policies must be what the model says.
class Life {
 public:
  /// `before_arrow` is called with what is outside before each arrow.
  Life(const Kind& kind, Host* host, std::function<void(const Outside&)> before_arrow = {});
  /// `host` has started with what is outside, or could not.
  Life(const Kind& kind, const Outside& outside, Host& host, bool is_started);

  void take(const Step& step);
  const Release& model() const { return model_; }
  const std::string& history() const { return history_; }
  /// What differs; empty: nothing.
  std::string difference() const;
  /// Thrown out of `take`.
  struct Different {
    std::string text;
  };

 private:
  using Act = void (Life::*)(uint8_t, uint8_t);
  struct Entry {
    const char* name;
    int weight;
    Act act;
  };
  static const std::vector<Entry>& table();

  void save(uint8_t what, uint8_t how);
  void remove(uint8_t what, uint8_t how);
  void put_back(uint8_t what, uint8_t how);
  void look(uint8_t what, uint8_t how);
  void reload(uint8_t what, uint8_t how);
  void call(uint8_t what, uint8_t how);
  void pin(uint8_t what, uint8_t how) { return_to(what, how, true); }
  void rollback(uint8_t what, uint8_t how) { return_to(what, how, false); }
  void return_to(uint8_t what, uint8_t how, bool pin);
  void unpin(uint8_t what, uint8_t how);
  void replace(uint8_t what, uint8_t how);
  void shadow(uint8_t what, uint8_t how);
  void canary(uint8_t what, uint8_t how);
  void start_candidate(uint8_t what, uint8_t how, Candidate as);
  void promote(uint8_t what, uint8_t how);
  void end_candidate(uint8_t what, uint8_t how);
  void set_param(uint8_t what, uint8_t how);
  void reset_state(uint8_t what, uint8_t how);
  void restart(uint8_t what, uint8_t how);
  void restart_with_other(uint8_t what, uint8_t how);

  void arrow();
  void write();
  void start();
  void expect_same(const char* what, bool expected, bool found) const;
  void expect_answer(size_t place, const Call& call);
  void settle(size_t place);

  Release model_;
  Host* const host_;
  const std::function<void(const Outside&)> before_arrow_;
  std::string history_;
  Contents saved_;
  bool is_started_ = false;
};

}  // namespace lives
