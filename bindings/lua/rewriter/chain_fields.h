#pragma once

/// A chain: the table that stands for an `if` of natural Lua while it runs. Rewritten code (natural_edits.h), the
/// functions that it calls (semantics/natural_functions.h) and scripts/prelude/natural.lua find in it, from 1 on:
#define TRIAGE_CHAIN_FIELDS(FIELD)                                                                        \
  FIELD(arm)     /* the branch that runs for every sample; 0: conditions are asked; -1: no branch runs */ \
  FIELD(masks)   /* the conditions that are masks, once there is one */                                   \
  FIELD(names)   /* of the variables that it selects */                                                   \
  FIELD(line)    /* of the `if` */                                                                        \
  FIELD(outer)   /* the chain around it in the same function */                                           \
  FIELD(taken)   /* the branch for the samples that no mask holds for */                                  \
  FIELD(scope)   /* of the branch that runs */                                                            \
  FIELD(restore) /* assigns to the variables that functions share, until the `if` has come to its end */

namespace triage::lua::rewriter::chain {

enum Field : int {
  before_the_first,
#define TRIAGE_FIELD(name) name,
  TRIAGE_CHAIN_FIELDS(TRIAGE_FIELD)
#undef TRIAGE_FIELD
};

struct ChainField {
  const char* name;
  Field place;
};
inline constexpr ChainField fields[] = {
#define TRIAGE_FIELD(name) {#name, name},
    TRIAGE_CHAIN_FIELDS(TRIAGE_FIELD)
#undef TRIAGE_FIELD
};

}  // namespace triage::lua::rewriter::chain
