#pragma once
// What is known of records while they are made by composites: detection and pushes into empty records give one of a few
// constant records in each row. Who knows which is in which row needs to unpack none of them.
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace triage::flags {

/// Each row of a tensor is one of 2^k constant rows, chosen by k masks. A row of flags is all its slots; a row of a
/// mask (N,) is one number, 0 or 1.
struct RowTable {
  using Row = std::vector<uint16_t>;
  std::vector<at::Tensor> masks;  // bool, (N, 1)
  std::vector<Row> rows;          // bit i of the index says whether masks[i] holds

  /// More would cost more calls than the general form does.
  static constexpr size_t MOST_MASKS = 4;

  static RowTable same_in_all(Row row) { return {{}, {std::move(row)}}; }
  static RowTable of_mask(at::Tensor mask) { return {{std::move(mask)}, {{0}, {1}}}; }
  bool is_constant() const { return rows.size() == 1; }
  RowTable changed(const std::function<Row(const Row&)>& change) const;
  /// The rows that `row(mine, theirs)` makes of both; nothing where that takes too many masks.
  std::optional<RowTable> joined(const RowTable& other, const std::function<Row(const Row&, const Row&)>& row) const;
};

/// While alive on a thread, composites note the tables of what they make there, and ask for those of their arguments.
/// Without one they know nothing: whoever calls them may write to records unseen.
class KnownRows {
 public:
  enum class Writes : uint8_t {
    none,       // as in a graph
    versioned,  // they raise the version of the tensor, as those of scripts do: nothing is known of one that was
                // written to
    unseen      // nothing is known, and nothing is known afterwards of what there was before
  };
  explicit KnownRows(Writes writes) noexcept;
  ~KnownRows();
  KnownRows(const KnownRows&) = delete;
  KnownRows& operator=(const KnownRows&) = delete;

  /// Null where nothing is known.
  static std::shared_ptr<const RowTable> of(const at::Tensor& tensor);
  /// Returns the tensor.
  static at::Tensor note(at::Tensor tensor, RowTable table);
  /// Whether anything is known here.
  static bool any() noexcept;
  /// After a write that nobody sees.
  static void forget() noexcept;

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct KnownRowsEntry {
    Weak tensor;  // keeps the address from being used again, not the data
    std::vector<int64_t> versions;
    std::shared_ptr<const RowTable> table;
  };
  std::optional<std::vector<int64_t>> versions(const at::Tensor& tensor, const RowTable& table) const;

  static constexpr size_t MOST_ENTRIES = 16;
  std::vector<KnownRowsEntry> entries_;
  KnownRows* before_;
  Writes writes_;
};

}  // namespace triage::flags
