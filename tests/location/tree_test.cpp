// The tree that fits many paths into few ids: what it promises, as laws and by example.
#include <doctest/doctest.h>
#include <rapidcheck.h>
#include <triage/error.h>
#include <triage/location_tree.h>

#include <algorithm>
#include <set>

using triage::InputError;
using triage::LocationTree;
using triage::WeightedLocationTree;

namespace {

using Paths = std::vector<std::string>;

/// Paths of up to four components from a small alphabet: many share prefixes.
rc::Gen<Paths> some_paths() {
  const auto component = rc::gen::elementOf(Paths{"a", "b", "layer.0", "layer.2", "layer.10", "head", "x"});
  const auto path =
      rc::gen::map(rc::gen::resize(4, rc::gen::nonEmpty(rc::gen::container<Paths>(component))), [](const Paths& parts) {
        std::string joined;
        for (const auto& part : parts) joined += (joined.empty() ? "" : ".") + part;
        return joined;
      });
  return rc::gen::container<Paths>(path);
}

template <typename Tree>
Tree& filled(Tree& tree, const Paths& paths) {
  for (const auto& path : paths) tree.add_path(path);
  tree.build_ids();
  return tree;
}

std::string longest_kept_prefix(const std::map<std::string, int64_t>& kept, std::string path) {
  while (!path.empty() && kept.count(path) == 0) {
    const size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  return path;
}

bool lies_in(const std::string& path, const std::string& subtree) {
  return path == subtree || path.rfind(subtree + '.', 0) == 0;
}

std::set<std::string> kept_in(const LocationTree& tree, const std::string& subtree) {
  std::set<std::string> kept;
  for (const auto& [path, id] : tree.to_dict())
    if (lies_in(path, subtree)) kept.insert(path);
  return kept;
}

}  // namespace

TEST_CASE("T16: every path has an id of its own while there are enough, depth first") {
  LocationTree tree;
  for (const char* path : {"head", "encoder.10", "encoder.2", "encoder"}) tree.add_path(path);
  const std::map<std::string, int64_t> expected = {{"encoder", 1}, {"encoder.2", 2}, {"encoder.10", 3}, {"head", 4}};
  CHECK(tree.build_ids() == expected);
  CHECK(tree.to_dict() == expected);
  CHECK(tree.get_location("encoder.2") == 2);
  CHECK(tree.get_location("encoder.2.weight") == 2);  // not added: its longest prefix
  CHECK(tree.get_location("encoder2") == 0);
  CHECK(tree.get_location("decoder") == 0);
  CHECK(tree.get_path("encoder.7.bias") == "encoder");
  CHECK(tree.text() == "LocationTree: 4 paths, 4 ids of 1023\n1  encoder\n2  encoder.2\n3  encoder.10\n4  head");
}

TEST_CASE("T17: what is deepest shares the id of the node above it") {
  LocationTree tree(5);  // four ids and Unknown
  for (int layer = 0; layer < 2; ++layer)
    for (const char* part : {"q", "k", "v"}) tree.add_path("encoder.layer." + std::to_string(layer) + ".attn." + part);
  for (const char* path : {"embedding", "head"}) tree.add_path(path);
  tree.build_ids();
  CHECK(tree.get_location("encoder.layer.0.attn.q") == tree.get_location("encoder.layer.0.attn.k"));
  CHECK(tree.get_location("encoder.layer.0.attn.q") != tree.get_location("encoder.layer.1.attn.q"));
  CHECK(tree.get_path("encoder.layer.1.attn.v") == "encoder.layer.1.attn");
  CHECK(tree.get_path("head") == "head");
  CHECK(tree.to_dict().size() == 4);
  CHECK(tree.text().find("encoder.layer.0.attn  and 3 below it") != std::string::npos);
}

TEST_CASE("T17: 3,000 paths fit 1,024 ids, and those near the root keep their own") {
  LocationTree tree;
  for (int layer = 0; layer < 100; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    tree.add_path(name);
    for (int i = 0; i < 29; ++i) tree.add_path(name + ".part" + std::to_string(i));
  }
  const auto ids = tree.build_ids();
  CHECK(ids.size() == 3000);
  CHECK(tree.to_dict().size() == 1023);
  for (int layer = 0; layer < 100; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    CHECK(tree.get_path(name) == name);
    CHECK(lies_in(tree.get_path(name + ".part7"), name));
  }
}

TEST_CASE("T17: a wide node loses only as many children as it must; at the root they become Unknown") {
  LocationTree flat(11);
  for (int i = 0; i < 30; ++i) flat.add_path("m" + std::to_string(i));
  flat.build_ids();
  CHECK(flat.to_dict().size() == 10);
  CHECK(flat.get_location("m9") == 10);
  CHECK(flat.get_location("m10") == 0);
  CHECK(flat.text().find("0  Unknown, which stands for 20") != std::string::npos);
  LocationTree list(11);
  for (int i = 0; i < 30; ++i) list.add_path("list." + std::to_string(i));
  list.build_ids();
  CHECK(list.get_path("list.8") == "list.8");
  CHECK(list.get_path("list.9") == "list");
  CHECK(list.get_location("list.29") == 1);
  LocationTree none(1);
  none.add_path("a.b");
  CHECK(none.build_ids() == std::map<std::string, int64_t>{{"a.b", 0}});
}

TEST_CASE("T18: light subtrees are collapsed first, heavy ones keep their detail") {
  WeightedLocationTree tree(8);
  for (const char* part : {"encoder", "decoder", "head"})
    for (int i = 0; i < 4; ++i) tree.add_path(std::string(part) + "." + std::to_string(i));
  tree.set_weight("head.*", 10.0);
  tree.set_weight("encoder.*", 2.0);
  tree.set_default_weight(0.5);
  tree.build_ids();
  CHECK(tree.get_path("decoder.1") == "decoder");
  CHECK(tree.get_path("head.3") == "head.3");
  CHECK(kept_in(tree, "head").size() == 4);
  CHECK(kept_in(tree, "encoder").size() == 2);  // itself, and one of its children
  tree.set_weight("decoder.*", 20.0);           // now the encoder gives way, whole, and head in part
  tree.build_ids();
  CHECK(kept_in(tree, "decoder").size() == 4);
  CHECK(tree.get_path("encoder.0") == "encoder");
  CHECK(kept_in(tree, "head").size() == 2);
  CHECK(tree.text().rfind("WeightedLocationTree: 12 paths, 7 ids of 7", 0) == 0);
}

TEST_CASE("T18: of several patterns the one set last counts, and a pattern set again takes the new place") {
  WeightedLocationTree tree(4);
  for (const char* path : {"a.0", "a.1", "b.0", "b.1"}) tree.add_path(path);
  tree.set_weight("*", 5.0);
  tree.set_weight("a.*", 1.0);
  tree.build_ids();
  CHECK(tree.get_path("a.0") == "a");
  CHECK(tree.get_path("b.0") == "b.0");
  tree.set_weight("b.*", 0.5);
  tree.build_ids();
  CHECK(tree.get_path("b.0") == "b");
  CHECK(tree.get_path("a.0") == "a.0");
}

TEST_CASE("T17: wrong use of a tree says what is wrong") {
  CHECK_THROWS_AS(LocationTree(0), InputError);
  CHECK_THROWS_AS(LocationTree(1025), InputError);
  LocationTree tree;
  for (const char* path : {"", ".", "a.", ".a", "a..b"}) CHECK_THROWS_AS(tree.add_path(path), InputError);
  CHECK(tree.size() == 0);
  CHECK(tree.get_location("a") == 0);
  tree.add_path("a");
  CHECK_THROWS_WITH(tree.get_location("a"),
                    "get_location: the tree changed since its ids were built; call build_ids first.");
  WeightedLocationTree weighted;
  CHECK_THROWS_AS(weighted.set_weight("", 1.0), InputError);
  CHECK_THROWS_AS(weighted.set_default_weight(std::nan("")), InputError);
  for (double weight : {-1.0, double{INFINITY}, -double{INFINITY}}) {
    CHECK_THROWS_AS(weighted.set_weight("a", weight), InputError);
    CHECK_THROWS_AS(weighted.set_default_weight(weight), InputError);
  }
  CHECK_NOTHROW(weighted.set_weight("a", 0.0));
}

TEST_CASE("T17: laws of the tree") {
  CHECK(rc::check("at most max_locations ids, each for one kept path", [] {
    const Paths paths = *some_paths();
    const auto most = *rc::gen::inRange<int64_t>(1, 40);
    LocationTree tree(most);
    filled(tree, paths);
    const auto kept = tree.to_dict();
    RC_ASSERT(static_cast<int64_t>(kept.size()) < most || kept.empty());
    std::set<int64_t> ids;
    for (const auto& [path, id] : kept) {
      RC_ASSERT(id >= 1 && id < most);
      RC_ASSERT(ids.insert(id).second);
    }
    // Nothing is given up that need not be.
    const std::set<std::string> distinct(paths.begin(), paths.end());
    if (static_cast<int64_t>(distinct.size()) < most) RC_ASSERT(kept.size() == distinct.size());
  }));
  CHECK(rc::check("a path resolves to itself or its longest kept prefix", [] {
    const Paths paths = *some_paths();
    LocationTree tree(*rc::gen::inRange<int64_t>(1, 40));
    filled(tree, paths);
    const auto kept = tree.to_dict();
    for (Paths asked : {paths, *some_paths()})
      for (const auto& path : asked) {
        const std::string prefix = longest_kept_prefix(kept, path);
        RC_ASSERT(tree.get_path(path) == prefix);
        RC_ASSERT(tree.get_location(path) == (prefix.empty() ? 0 : kept.at(prefix)));
      }
  }));
  CHECK(rc::check("ids depend on the set of paths, not on their order", [] {
    Paths paths = *some_paths();
    const auto most = *rc::gen::inRange<int64_t>(1, 40);
    LocationTree first(most), second(most);
    filled(first, paths);
    std::reverse(paths.begin(), paths.end());
    std::rotate(paths.begin(), paths.begin() + static_cast<Paths::difference_type>(paths.size() / 3), paths.end());
    filled(second, paths);
    RC_ASSERT(first.to_dict() == second.to_dict());
    RC_ASSERT(first.text() == second.text());
  }));
}

TEST_CASE("T18: law of weights: raising a subtree's weight never loses detail there") {
  CHECK(rc::check("one weight a subtree", [] {
    const Paths roots = {"a", "b", "head", "x"};
    WeightedLocationTree tree(*rc::gen::inRange<int64_t>(1, 40));
    for (const auto& path : *some_paths())
      for (const auto& root : roots)
        if (*rc::gen::arbitrary<bool>()) tree.add_path(root + "." + path);
    for (const auto& root : roots) tree.set_weight(root + ".*", *rc::gen::inRange(1, 5));
    tree.build_ids();
    const std::string raised = *rc::gen::elementOf(roots);
    const std::set<std::string> before = kept_in(tree, raised);
    tree.set_weight(raised + ".*", *rc::gen::inRange(5, 9));
    tree.build_ids();
    for (const auto& [path, id] : tree.to_dict()) RC_ASSERT(id > 0);
    // The subtree's own node may disappear: it stands for what was collapsed into it, and nothing is any more.
    for (const auto& path : before)
      RC_ASSERT(tree.get_path(path) == path || path == raised || !kept_in(tree, path).empty());
    RC_ASSERT(kept_in(tree, raised).size() + 1 >= before.size());
  }));
}
