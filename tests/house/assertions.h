#pragma once

namespace triage::test {

/// How often a false TRIAGE_ASSERT of a file without TRIAGE_ASSERTIONS evaluated its condition.
int evaluated_without_assertions();

}  // namespace triage::test
