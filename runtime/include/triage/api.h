#pragma once

/// Marks the functions and classes that the shared libraries export. Everything else in them is hidden.
#define TRIAGE_API __attribute__((visibility("default")))
