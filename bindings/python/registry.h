#pragma once
#include <triage/params.h>
#include <triage/runtime.h>

#include <cstdint>
#include <memory>
#include <string>

/// Policies as the operator `triage::run_policy`, which finds them by their keys. Thread-safe.
namespace triage::python {

/// Throws InputError if a living policy of this process has the key. (A forked child inherits keys, and may take them
/// anew.)
void register_policy(const std::string& key, const Policy& policy);
void forget_policy(const std::string& key) noexcept;
/// Throws InputError that says how to load it, if there is none.
Policy find_policy(const std::string& key);
/// Values of params for many calls, under a number. `bound_params` throws InputError where there are none.
int64_t bind_params(Params values);
std::shared_ptr<const Params> bound_params(int64_t number);
void drop_params(int64_t number) noexcept;
/// `callback`, the address of a function of ctypes, opens the policy of a key in a forked child that has not used it
/// yet.
void set_reopener(int64_t callback);

}  // namespace triage::python
