#pragma once
#include "runtime/capsule/saved_tensors.h"

#include <lua.hpp>

#include <functional>
#include <string>
#include <vector>

/// Values of a script, and all that they lead to, as JSON: for capsules (runtime/capsule). Functions are the text of
/// their chunk, which of its functions they are, and their upvalues; what belongs to the library is a name. Globals
/// that functions name are part of it.
///
/// {"roots": [VALUE], "objects": [OBJECT], "cells": [VALUE], "chunks": [{name, hash, text}], "globals": [[name,
/// VALUE]],
///  "missing": [sentence], "masked": whether values were left out by their names}; snapshot.cpp has VALUE and OBJECT.
namespace triage::lua {

/// How deep values may be nested.
constexpr int max_snapshot_depth = 150;

struct SnapshotOptions {
  capsule::SavedTensors& tensors;
  const std::vector<std::string>& masked;  // upvalues, fields and globals whose values are left out
  std::vector<std::string> names = {};     // of the values themselves
  /// The function behind a value that stands for one (a compiled function), as a registry reference; LUA_NOREF for
  /// others.
  std::function<int(lua_State*, int)> function_behind = {};
};

/// The values at stack indices `first` to `last`. Runs no code of the script.
capsule::Json snapshot(lua_State* L, int first, int last, const SnapshotOptions& options);

/// Pushes the roots of a snapshot, made again in a fresh state; globals are set. What the snapshot lacks raises an
/// error where a script uses it. In a protected call, under budget. Throws files::Malformed for what is no snapshot.
void push_snapshot(lua_State* L, const capsule::Json& snapshot, const capsule::RestoredTensors& tensors);

}  // namespace triage::lua
