// A trie of path components. `Pruning` decides which nodes keep an id. The order in which nodes give way is fixed
// before the first does (by weight, depth, size, place), descendants always before their ancestors: that is what makes
// the result independent of the order of adding, and a heavier subtree never worse off.
#include <triage/error.h>
#include <triage/location_tree.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <tuple>

#include "runtime/location/glob.h"

namespace triage {
namespace {

constexpr double nothing_below = -std::numeric_limits<double>::infinity();

/// Takes the first component off `rest`.
std::string_view next_component(std::string_view& rest) {
  const size_t dot = rest.find('.');
  const std::string_view component = rest.substr(0, dot);
  rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
  return component;
}

size_t digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
  return end - at;
}

}  // namespace

bool LocationTree::NaturalLess::operator()(std::string_view a, std::string_view b) const noexcept {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    size_t digits_a = digits_at(a, i), digits_b = digits_at(b, j);
    if (digits_a > 0 && digits_b > 0) {
      while (digits_a > 1 && a[i] == '0') ++i, --digits_a;
      while (digits_b > 1 && b[j] == '0') ++j, --digits_b;
      if (digits_a != digits_b) return digits_a < digits_b;
      if (const int order = a.compare(i, digits_a, b.substr(j, digits_b))) return order < 0;
      i += digits_a, j += digits_b;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // `01` and `1` are two names
}

LocationTree::LocationTree(int64_t max_locations) : max_locations_(max_locations), nodes_(1) {
  if (max_locations < 1 || max_locations > 1024)
    throw InputError("LocationTree: max_locations must be 1..1024 (ids have 10 bits), got " +
                     std::to_string(max_locations) + ".");
}

void LocationTree::add_path(std::string_view path) {
  const bool has_gap = path.empty() || path.front() == '.' || path.back() == '.' || path.find("..") != path.npos;
  if (has_gap)
    throw InputError("add_path: expected a dotted path such as `encoder.2`, got `" + std::string(path) +
                     "`, which has an empty component.");
  size_t node = 0;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view component = next_component(rest);
    auto child = nodes_[node].children.find(component);
    if (child == nodes_[node].children.end()) {
      nodes_[node].children.emplace(component, nodes_.size());
      nodes_.emplace_back();
      nodes_.back().name = component;
      nodes_.back().parent = node;
      node = nodes_.size() - 1;
    } else {
      node = child->second;
    }
  }
  if (nodes_[node].added) return;
  nodes_[node].added = true;
  ++size_;
  invalidate();
}

std::vector<size_t> LocationTree::depth_first() const {
  std::vector<size_t> order, pending{0};
  while (!pending.empty()) {
    const size_t node = pending.back();
    pending.pop_back();
    order.push_back(node);
    const auto& children = nodes_[node].children;
    for (auto child = children.rbegin(); child != children.rend(); ++child) pending.push_back(child->second);
  }
  return order;
}

class LocationTree::Pruning {
 public:
  explicit Pruning(LocationTree& tree) : nodes_(tree.nodes_), facts_(nodes_.size()) {
    for (Node& node : nodes_) node.kept = node.added;
    const std::vector<size_t> order = tree.depth_first();
    for (size_t place = 0; place < order.size(); ++place) facts_[order[place]].place = place;
    for (size_t i = 1; i < nodes_.size(); ++i) facts_[i].depth = facts_[nodes_[i].parent].depth + 1;
    for (size_t i = nodes_.size(); i-- > 0;) {  // children come after their parent
      SubtreeFacts& own = facts_[i];
      own.heaviest = own.heaviest_below;
      own.kept = own.kept_below;
      if (nodes_[i].added) {
        own.heaviest = std::max(own.heaviest, tree.weight_of(tree.path_of(nodes_[i])));
        ++own.kept;
      }
      own.locations = own.kept;
      if (i == 0) break;
      SubtreeFacts& parent = facts_[nodes_[i].parent];
      parent.heaviest_below = std::max(parent.heaviest_below, own.heaviest);
      parent.kept_below += own.kept;
    }
  }

  void prune_to(int64_t limit) {
    if (facts_[0].kept_below <= limit) return;
    for (size_t node : order_of_collapse()) {
      const int64_t excess = facts_[0].kept_below - limit;
      if (excess <= 0) return;
      collapse(node, excess);
    }
  }

 private:
  struct SubtreeFacts {
    size_t depth = 0, place = 0;
    double heaviest = nothing_below;        // of the added paths in the subtree
    double heaviest_below = nothing_below;  // ... without the node itself: what collapsing it costs
    int64_t locations = 0;                  // added paths in the subtree
    int64_t kept = 0;                       // those that still have an id of their own, and the same below the node
    int64_t kept_below = 0;
  };

  std::vector<size_t> order_of_collapse() const {
    std::vector<size_t> order;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (facts_[i].kept_below > 0) order.push_back(i);
    // Lightest, deepest, largest, last.
    const auto key = [this](size_t node) {
      const SubtreeFacts& facts = facts_[node];
      return std::make_tuple(facts.heaviest_below, -static_cast<int64_t>(facts.depth), -facts.locations,
                             -static_cast<int64_t>(facts.place));
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  /// Everything below `node` has given way already, so that each of its children holds one id or none. Takes from as
  /// many children as are too many, lightest and last first; the node then stands for them.
  void collapse(size_t node, int64_t excess) {
    const bool has_id = node == 0 || nodes_[node].kept;  // the root is `Unknown`
    if (facts_[node].kept_below <= (has_id ? 0 : 1)) return;
    std::vector<size_t> children;
    for (const auto& [name, child] : nodes_[node].children)
      if (facts_[child].kept > 0) children.push_back(child);
    std::stable_sort(children.begin(), children.end(), [this](size_t a, size_t b) {
      return std::make_tuple(facts_[a].heaviest, -static_cast<int64_t>(facts_[a].place)) <
             std::make_tuple(facts_[b].heaviest, -static_cast<int64_t>(facts_[b].place));
    });
    const auto give_way = std::min<size_t>(children.size(), static_cast<size_t>(excess + (has_id ? 0 : 1)));
    for (size_t i = 0; i < give_way; ++i) set_kept(only_kept_in(children[i]), false);
    if (!has_id) set_kept(node, true);
  }

  size_t only_kept_in(size_t node) const {
    while (!nodes_[node].kept) {
      for (const auto& [name, child] : nodes_[node].children) {
        if (facts_[child].kept == 0) continue;
        node = child;
        break;
      }
    }
    return node;
  }

  void set_kept(size_t node, bool kept) {
    const int64_t change = kept ? 1 : -1;
    nodes_[node].kept = kept;
    facts_[node].kept += change;
    while (node != 0) {
      node = nodes_[node].parent;
      facts_[node].kept += change;
      facts_[node].kept_below += change;
    }
  }

  std::vector<Node>& nodes_;
  std::vector<SubtreeFacts> facts_;
};

std::map<std::string, int64_t> LocationTree::build_ids(int64_t room) {
  Pruning(*this).prune_to(std::max<int64_t>(std::min(max_locations_, room), 1) - 1);
  int64_t next = 1;
  for (size_t index : depth_first()) {
    Node& node = nodes_[index];
    node.id = node.kept ? next++ : nodes_[node.parent].id;  // of the root: its own, 0
  }
  built_ = true;
  std::map<std::string, int64_t> ids;
  for (const Node& node : nodes_)
    if (node.added) ids.emplace(path_of(node), node.id);
  return ids;
}

void LocationTree::check_built(const char* operation) const {
  if (!built_)
    throw InputError(std::string(operation) + ": the tree changed since its ids were built; call build_ids first.");
}

const LocationTree::Node* LocationTree::find_kept(std::string_view path) const {
  const Node *node = nodes_.data(), *kept = nullptr;
  while (!path.empty()) {
    auto child = node->children.find(next_component(path));
    if (child == node->children.end()) break;
    node = &nodes_[child->second];
    if (node->kept) kept = node;
  }
  return kept;
}

int64_t LocationTree::get_location(std::string_view path) const {
  check_built("get_location");
  const Node* kept = find_kept(path);
  return kept ? kept->id : 0;
}

std::string LocationTree::get_path(std::string_view path) const {
  check_built("get_path");
  const Node* kept = find_kept(path);
  return kept ? path_of(*kept) : std::string();
}

std::string LocationTree::path_of(const Node& node) const {
  std::string path = node.name;
  for (size_t above = node.parent; above != 0; above = nodes_[above].parent) path = nodes_[above].name + '.' + path;
  return path;
}

std::map<std::string, int64_t> LocationTree::to_dict() const {
  check_built("to_dict");
  std::map<std::string, int64_t> kept;
  for (const Node& node : nodes_)
    if (node.kept) kept.emplace(path_of(node), node.id);
  return kept;
}

std::string LocationTree::text() const {
  const std::string head = std::string(name()) + ": " + std::to_string(size_) + " paths, ";
  if (!built_) return head + "no ids yet (build_ids gives them)";
  std::vector<int64_t> sharing(1024);
  for (const Node& node : nodes_)
    if (node.added && !node.kept) ++sharing[static_cast<size_t>(node.id)];
  std::string lines;
  int64_t ids = 0;
  for (size_t index : depth_first()) {
    const Node& node = nodes_[index];
    if (!node.kept) continue;
    ++ids;
    lines += '\n' + std::to_string(node.id) + "  " + path_of(node);
    if (const int64_t more = sharing[static_cast<size_t>(node.id)])
      lines += "  and " + std::to_string(more) + " below it";
  }
  if (sharing[0] > 0) lines += "\n0  Unknown, which stands for " + std::to_string(sharing[0]);
  return head + std::to_string(ids) + " ids of " + std::to_string(max_locations_ - 1) + lines;
}

double LocationTree::weight_of(const std::string&) const { return 1.0; }

namespace {

void check_weight(const char* operation, double weight) {
  if (!std::isfinite(weight) || weight < 0) {
    throw InputError(std::string(operation) + ": expected a finite number, 0 or more, as weight, got " +
                     (std::isnan(weight) ? "NaN" : std::to_string(weight)) + ".");
  }
}

}  // namespace

void WeightedLocationTree::set_weight(const std::string& pattern, double weight) {
  if (pattern.empty()) throw InputError("set_weight: expected a pattern such as `head.*`, got an empty one.");
  check_weight("set_weight", weight);
  const auto same = [&](const auto& entry) { return entry.first == pattern; };
  weights_.erase(std::remove_if(weights_.begin(), weights_.end(), same), weights_.end());
  weights_.emplace_back(pattern, weight);
  invalidate();
}

void WeightedLocationTree::set_default_weight(double weight) {
  check_weight("set_default_weight", weight);
  default_weight_ = weight;
  invalidate();
}

double WeightedLocationTree::weight_of(const std::string& path) const {
  for (auto entry = weights_.rbegin(); entry != weights_.rend(); ++entry)
    if (matches_glob(entry->first, path)) return entry->second;
  return default_weight_;
}

}  // namespace triage
