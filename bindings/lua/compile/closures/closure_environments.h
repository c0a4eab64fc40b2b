#pragma once
#include "bindings/lua/compile/compiled_function.h"

#include <triage/cache_statistics.h>

#include <memory>
#include <string>
#include <vector>

/// The caches of a compiled function: one partition of graphs for each environment, which is its plain arguments and
/// all it can read.
namespace triage::lua {

/// The partition of the environment as it is, for plain arguments such as `arguments` (as bytes); the call's own begin
/// at stack index 2.
std::shared_ptr<CompiledFunction::CachePartition> partition_for(lua_State* L, CompiledFunction& function,
                                                                const std::string& arguments);

/// What a function under allow_in_graph wrote in the call that captured is no part of the key any more: the graphs of
/// that call are found under what is left.
void find_without_allowed_writes(lua_State* L, CompiledFunction& function, const std::string& arguments,
                                 const std::shared_ptr<CompiledFunction::CachePartition>& partition);

/// In the order in which they were made.
std::vector<const CompiledFunction::CachePartition*> partitions_in_order(const CompiledFunction& function);

/// For what breaks graphs, in all environments; what its segments take to compile is counted with the function's clock.
std::shared_ptr<capture::TraceTree> new_traces(const CompiledFunction& function);

/// False after forget_all_graphs, until its next call.
bool has_its_graphs(const CompiledFunction& function) noexcept;
/// Of all environments together.
CacheStatistics statistics_of(const CompiledFunction& function);
/// Pushes a table with the fields of CacheStatistics.
void push_statistics(lua_State* L, const CacheStatistics& statistics);

/// Waits until the best code of every graph is ready, in all environments.
void finish_compiling(const CompiledFunction& function);

/// Every compiled function of the process forgets its graphs before its next call.
void forget_all_graphs() noexcept;

}  // namespace triage::lua
