#pragma once
#include <cstdint>

namespace triage::capture {

/// Why captured code breaks into several graphs: graph_break.inc says what each stands for.
enum class Break : uint8_t {
#define TRIAGE_GRAPH_BREAK(name, id, title, explanation) name,
#include "runtime/capture/graph_break.inc"
#undef TRIAGE_GRAPH_BREAK
};

}  // namespace triage::capture
