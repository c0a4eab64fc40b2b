#pragma once
// Options that several commands have. Only the files of this folder include CLI11, which takes seconds to compile.
#include <triage/backend.h>
#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/commands.h"

namespace triage::cli {

using Action = std::function<int()>;

/// A subcommand with its options, which `action` runs once it is chosen.
template <typename Command>
std::pair<CLI::App*, std::shared_ptr<Command>> add_command(CLI::App& app, Action& action, const char* name,
                                                           const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  auto options = std::make_shared<Command>();
  command->callback([options, &action] { action = [options] { return run(*options); }; });
  return {command, options};
}

/// May be given several times, with one value each.
inline CLI::Option* add_repeated(CLI::App& command, const char* name, std::vector<std::string>& into, const char* help,
                                 const char* type) {
  return command.add_option(name, into, help)
      ->type_name(type)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

inline void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "print one JSON object"); }

inline void add_define_option(CLI::App& command, std::vector<std::string>& given) {
  add_repeated(command, "--define", given,
               "a tensor or a TorchScript module that the host gives the policy under this name", "NAME=FILE");
}

inline void add_limits_option(CLI::App& command, std::vector<std::string>& limits) {
  add_repeated(command, "--limits", limits,
               "the budgets of the script, as triage::Limits of a host: instructions, seconds, script_bytes, "
               "tensor_bytes; 0: no limit",
               "NAME=NUMBER,...");
}

/// Policy, inputs, params and what the host gives: for commands that can find inputs for themselves.
inline void add_example_options(CLI::App& command, CallOptions& options) {
  command.add_option("POLICY", options.policy, "Lua file that returns a policy; - is standard input")->required();
  add_repeated(command, "--input,-i", options.inputs,
               "a tensor for an input: NAME=FILE, NAME=FILE:KEY, or NAME=GENERATOR", "NAME=FILE");
  add_repeated(command, "--param,-p", options.params,
               "a value for a param of the policy: a number, numbers with commas, or @FILE", "NAME=VALUE");
  add_define_option(command, options.given);
  command.footer(
      "Files: .pt and .pth as torch.save writes them, .npy, .safetensors; FILE:KEY picks one of several tensors.\n"
      "A generator is randn, rand, randint, zeros, ones or arange, a shape, and options:\n"
      "  randn:32x512,seed=1,dtype=float16,nan=3,inf=2   3 samples with a NaN, 2 with an Inf\n"
      "  randint:32x8,low=0,high=100                     integers, 100 excluded\n");
}

/// CLI::Range lets "nan" pass.
struct NumberIn : CLI::Range {
  NumberIn(double least, double most) : Range(least, most) {
    func_ = [in_range = func_](std::string& text) {
      double number = 0;
      const bool is_nan = CLI::detail::lexical_cast(text, number) && std::isnan(number);
      return is_nan ? fmt::format("expected a number, got {}", text) : in_range(text);
    };
  }
};

inline CLI::Option* add_sample_option(CLI::App& command, std::vector<int64_t>& samples, const char* help) {
  return command.add_option("--sample", samples, help)
      ->type_name("N")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

inline CLI::Option* add_backend_option(CLI::App& command, std::string& backend) {
  return command.add_option("--backend", backend, "the backend that runs the captured graph")
      ->type_name(fmt::format("{}", fmt::join(list_backends(), "|")))
      ->capture_default_str();
}

inline void add_call_options(CLI::App& command, CallOptions& options) {
  add_example_options(command, options);
  add_backend_option(command, options.backend);
  command.add_option("--device", options.device, "the device of the inputs")->capture_default_str();
  add_limits_option(command, options.limits);
  command.add_flag("--fullgraph", options.fullgraph, "make a graph break an error");
  command
      .add_option("--masked-rows", options.masked_rows, "if masked rows may reach gradients: warn, or require that not")
      ->check(CLI::IsMember({"warn", "require"}))
      ->capture_default_str();
}

/// Commands about one policy: run, exec, check, test, isolate, verify, statistics, explain, export, bench,
/// repl. `arguments` are those of the script of `exec`.
void add_policy_commands(CLI::App& app, Action& action, std::vector<std::string> arguments);

}  // namespace triage::cli
