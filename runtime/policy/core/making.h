#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "runtime/policy/files/contents.h"
#include "runtime/policy/versions/version.h"

/// How a version is made: its source is loaded, tried beside the live version, and compiled for the inputs in use.
///
/// A new source is loaded up to five times, each into an interpreter of its own, because a script remembers what it
/// did:
///   1. the version itself, which goes live with nothing remembered;
///   2. one that runs its tests, and gives the outputs that it declares;
///   3. and 4. the live source and the new one, side by side on synthetic inputs;
///   5. the version once more, where compiling it has changed what it remembers.
/// A source that is known to be good skips 2 to 4; without calls so far, there are no inputs for 3 and 4.
namespace triage::policy {

class PolicyCore;

/// A source that is to become a version, and where it comes from.
struct NewSource {
  std::string source;
  std::string path;                            // for messages
  std::filesystem::path file;                  // in whose folder it may read; empty: it may not
  bool on_disk = false;                        // `file` holds the source
  std::shared_ptr<const Files> given = {};     // of a bundle: read in the place of the disk
  Files known = {};                            // read before: the same bytes are shared
  std::function<void(Contents)> on_read = {};  // told of each read of the files, whether or not a version comes of it
};

/// Loads a source with the files that it reads. They may be replaced one after the other meanwhile: what was read makes
/// a version only where all of it was on the disk at one time. Throws LoadError, LimitError, FileError, NotNow.
std::shared_ptr<PolicyVersion> load_version(PolicyCore& policy, NewSource source);
/// Loads contents that were live before a restart. The host sees them again: it may think otherwise by now.
std::shared_ptr<PolicyVersion> load_kept_version(PolicyCore& policy, const Contents& contents);
/// Loads the first version of a policy, and tries what it says of itself: its declared outputs, and with `tests` its
/// tests.
std::shared_ptr<PolicyVersion> make_first(PolicyCore& policy, NewSource source, bool tests);
enum class Becomes : uint8_t { live, candidate };
/// Loads, tries and compiles what is to follow the live version; throws where it may not, with a place in the script:
/// GateStop where all is well with it but for a gate of the host.
std::shared_ptr<PolicyVersion> make_successor(PolicyCore& policy, NewSource source, Becomes becomes);

}  // namespace triage::policy
