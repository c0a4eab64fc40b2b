#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// A script engine for tests, so that the policy layer is tested without Lua. It is registered for ".fake". A script is
/// a list of lines, each one statement; `z` is the first input:
///
///   inputs a b | outputs a b | param limit 2.0 | name n | fullgraph | pass_through      the contract
///   declare z float N 3   an input or output, after their names: float, double, floating or error; sizes and names
///   add 1 | mul 2 | add_param limit | fail_unless_rows 4                 operations on z; the last throws in ATen
///   pair 3         two outputs: (z + 3, a tensor of threes)
///   narrow 2       the first 2 columns
///   double         z in float64
///   flags          a second output: flags of z
///   host f         z = f(z), a host function
///   raise why      throws PolicyError whenever the script runs
///   broken why     LoadError at its line
///   sleep ms       when it is loaded
///   add_file name  adds the number in a file of the policy's folder; `add_file name 5`: 5 where it cannot be read
///   hook           calls `fake::when_loaded` when it is loaded
///   count          z = z + how often this script has run, which breaks its graph
///   remember       keeps a number as its state: z = z + the number of calls with this key that were answered before
///   cholesky       an operator that fails on some values, in graphs, too
///   raise_above x | double_above x    where an element is more than x; a graph break
///   overrun_above x    where an element is more than x, it takes longer than any deadline; a graph break
///   for_double ... the statement that follows, for inputs of that type
///   test name why  a test of its own that fails with `why` (none: passes)
namespace fake {

/// Loaded and not yet destroyed, and how many were destroyed on a thread that says it is a caller.
extern std::atomic<int> alive;
extern std::atomic<int> destroyed_by_caller;
extern thread_local bool is_caller;
extern std::function<void()> when_loaded;

void write(const std::filesystem::path& path, std::string_view text);
std::string read(const std::filesystem::path& path);
/// Writes another file and renames it over `path`, as editors do.
void rename_save(const std::filesystem::path& path, std::string_view text);

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Waits until `done` holds; false when it does not come about in a minute (never on a machine that works).
bool eventually(const std::function<bool()>& done);

/// What `fn` throws as text; empty when it does not throw.
std::string message_of(const std::function<void()>& fn);

}  // namespace fake
