#pragma once
#include <triage/api.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triage {

/// Fits any number of dotted paths (`encoder.layers.0.attention`) into a limited number of ids.
///
/// While there are more paths than ids, it collapses subtrees into their parent: deepest first, at one depth the
/// largest first, so that nodes near the root keep their own names. The last subtree loses only as many children as
/// necessary. A path without its own id resolves to its longest prefix that has one; if no prefix has one, to id 0,
/// `Unknown`.
///
/// Ids count from 1, depth first, children in the natural order of their names (`layer.2` before `layer.10`): which
/// paths keep an id, and which id, depends only on the set of paths, not on the order of insertion.
///
/// Only one thread may add paths; after `build_ids` any number may query. An empty path or component throws InputError,
/// and so does a query between `add_path` and `build_ids`.
class TRIAGE_API LocationTree {
 public:
  /// `max_locations`: the number of ids, including `Unknown`, 1..1024.
  explicit LocationTree(int64_t max_locations = 1024);
  virtual ~LocationTree() = default;

  void add_path(std::string_view path);
  /// Decides which paths keep an id, and returns the id of every added path. `room`: a smaller limit than max_locations
  /// for this call (including `Unknown`).
  std::map<std::string, int64_t> build_ids(int64_t room = 1024);
  /// The id of `path`, added or not: that of its longest prefix with an id, else 0.
  int64_t get_location(std::string_view path) const;
  /// That prefix itself; empty if there is none.
  std::string get_path(std::string_view path) const;
  /// The paths with their own id, including those that only represent their collapsed children.
  std::map<std::string, int64_t> to_dict() const;
  /// Readable text: one line per id, with the number of paths that share it.
  std::string text() const;

  int64_t max_locations() const noexcept { return max_locations_; }
  /// The number of different paths added.
  int64_t size() const noexcept { return size_; }

 protected:
  LocationTree(const LocationTree&) = default;
  LocationTree& operator=(const LocationTree&) = default;
  /// The weight of an added path: lighter subtrees are collapsed first.
  virtual double weight_of(const std::string& path) const;
  virtual const char* name() const { return "LocationTree"; }
  /// Call it when the inputs of `build_ids` change: `build_ids` must run again.
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

/// A LocationTree that collapses by weight before depth: the lightest subtree first. The weight of a subtree is that of
/// its heaviest path. Raising the weights of a subtree (to one weight, or by one factor) never loses detail there.
class TRIAGE_API WeightedLocationTree : public LocationTree {
 public:
  using LocationTree::LocationTree;
  /// Weight of the paths that match a glob pattern, where `*` also matches dots (`head.*`, `encoder.layer*`). The last
  /// matching pattern wins. Throws InputError for an empty pattern and a weight that is not finite and 0 or more.
  void set_weight(const std::string& pattern, double weight);
  /// Weight of paths that no pattern matches; default 1.
  void set_default_weight(double weight);

 protected:
  double weight_of(const std::string& path) const override;
  const char* name() const override { return "WeightedLocationTree"; }

 private:
  std::vector<std::pair<std::string, double>> weights_;
  double default_weight_ = 1.0;
};

}  // namespace triage
