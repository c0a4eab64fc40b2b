#pragma once
/// Everything a host needs: load policies, run them, look at the flags.
#include <triage/backend.h>
#include <triage/config.h>
#include <triage/error.h>
#include <triage/flags.h>
#include <triage/front_end.h>
#include <triage/graph.h>
#include <triage/instrument.h>
#include <triage/location.h>
#include <triage/location_tree.h>
#include <triage/provenance.h>
#include <triage/runtime.h>
#include <triage/tracked.h>
#include <triage/version.h>
