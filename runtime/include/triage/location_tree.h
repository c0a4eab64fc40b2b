#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triage {

/// Fits any number of dotted paths (`encoder.layers.0.attention`) into a limited number of ids.
///
/// While there are more paths than ids, subtrees are collapsed into the node above them: deepest first, at one depth the
/// largest first, so that what is near the root keeps a name of its own. The last subtree to give way loses only as many of
/// its children as it must. A path that lost its own id resolves to the longest prefix that has one; where no prefix has
/// one, to id 0, `Unknown`.
///
/// Ids count from 1, depth first, children in the natural order of their names (`layer.2` before `layer.10`): which paths
/// keep an id, and which, depends on the set of paths alone, not on the order in which they were added.
///
/// One thread at a time while paths are added; after `build_ids` any number may ask. An empty path or component, and asking
/// between `add_path` and `build_ids`, throw InputError.
class LocationTree {
 public:
  /// `max_locations` ids, `Unknown` included: 1..1024.
  explicit LocationTree(int64_t max_locations = 1024);
  virtual ~LocationTree() = default;

  void add_path(std::string_view path);
  /// Decides which paths keep an id, and gives the id of every path that was added. `room`: fewer ids than max_locations
  /// for this once (`Unknown` included).
  std::map<std::string, int64_t> build_ids(int64_t room = 1024);
  /// The id of `path`, added or not: that of its longest prefix with an id, else 0.
  int64_t get_location(std::string_view path) const;
  /// That prefix itself; empty where there is none.
  std::string get_path(std::string_view path) const;
  /// The paths that have an id of their own. One that only stands for what was collapsed into it is among them.
  std::map<std::string, int64_t> to_dict() const;
  /// For people: a line for each id, with how many paths share it.
  std::string text() const;

  int64_t max_locations() const noexcept { return max_locations_; }
  /// How many different paths were added.
  int64_t size() const noexcept { return size_; }

 protected:
  LocationTree(const LocationTree&) = default;
  LocationTree& operator=(const LocationTree&) = default;
  /// How much the detail at an added path is worth: lighter subtrees are collapsed first.
  virtual double weight_of(const std::string& path) const;
  virtual const char* name() const { return "LocationTree"; }
  /// What steers `build_ids` has changed: it must be called again.
  void invalidate() noexcept { built_ = false; }

 private:
  struct NaturalLess {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const noexcept;
  };
  struct Node {
    std::string name;
    size_t parent = 0;
    std::map<std::string, size_t, NaturalLess> children;
    bool added = false;
    bool kept = false;
    int64_t id = 0;
  };
  class Pruning;

  const Node* find_kept(std::string_view path) const;
  std::string path_of(const Node& node) const;
  std::vector<size_t> depth_first() const;
  void check_built(const char* operation) const;

  int64_t max_locations_;
  int64_t size_ = 0;
  bool built_ = true;
  std::vector<Node> nodes_;  // the root first, every node after its parent
};

/// A LocationTree where weights decide before depth does what keeps its detail: the lightest subtree is collapsed first, and
/// is as heavy as the heaviest path in it. Raising the weights of a subtree (to one weight, or by one factor) never loses
/// detail there.
class WeightedLocationTree : public LocationTree {
 public:
  using LocationTree::LocationTree;
  /// Weight of the paths that match a glob pattern, where `*` also matches dots (`head.*`, `encoder.layer*`). The pattern
  /// that was set last counts. Throws InputError for an empty pattern and a weight that is not finite and 0 or more.
  void set_weight(const std::string& pattern, double weight);
  /// Weight of paths that no pattern matches; 1 unless set.
  void set_default_weight(double weight);

 protected:
  double weight_of(const std::string& path) const override;
  const char* name() const override { return "WeightedLocationTree"; }

 private:
  std::vector<std::pair<std::string, double>> weights_;
  double default_weight_ = 1.0;
};

}  // namespace triage
