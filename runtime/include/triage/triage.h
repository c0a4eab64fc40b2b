#pragma once
/// Everything a host needs: load policies, run them, look at the flags.
#include <triage/backend.h>
#include <triage/config.h>
#include <triage/error.h>
#include <triage/flags.h>
#include <triage/front_end.h>
#include <triage/graph.h>
#include <triage/location.h>
#include <triage/result.h>
#include <triage/runtime.h>
#include <triage/scoped_config.h>
#include <triage/type_cast.h>
#include <triage/typing.h>
#include <triage/version.h>
