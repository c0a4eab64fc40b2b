#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "runtime/backends/fused/fusion_groups.h"
#include "runtime/backends/fused/loop_call.h"

namespace triage::fused {

using Sizes = c10::SmallVector<int64_t, 6>;

/// The sizes of what a join makes of tensors of these sizes; false where they do not fit together.
bool joined_sizes(const Concatenation& join, c10::ArrayRef<Sizes> pieces, Sizes& sizes);

/// Where the rows of loop output `output` go that is a piece of a join: each is `count` times `bytes`, `pitch` bytes
/// apart.
struct Piece {
  size_t output;
  char* memory;
  int64_t count, bytes, pitch;
  int64_t row_bytes() const { return count * bytes; }
};

/// Lays the pieces into the memory of `joined`. Those that have their rows one after the other there go into `out`,
/// others into `pieces`.
void lay_out(const Concatenation& join, c10::ArrayRef<Sizes> sizes, const at::Tensor& joined,
             c10::SmallVectorImpl<void*>& out, c10::SmallVectorImpl<Piece>& pieces);

/// Loops write rows without gaps: they write some rows of each piece to memory of this thread, from where these go to
/// their places while they are in the cache.
class PieceWriter {
 public:
  explicit PieceWriter(c10::ArrayRef<Piece> pieces);
  int64_t scratch_bytes() const { return rows_ * row_bytes_; }
  /// `run(out, begin, end)` computes rows. `out`: where outputs lie that are no pieces.
  template <class Run>
  void operator()(c10::SmallVector<void*, 8> out, char* scratch, int64_t begin, int64_t end, const Run& run) const {
    for (int64_t first = begin; first < end; first += rows_) {
      const int64_t last = first + rows_ < end ? first + rows_ : end;
      char* memory = scratch;
      for (const Piece& piece : pieces_) {
        out[piece.output] = memory - first * piece.row_bytes();
        memory += rows_ * whole_lines(piece.row_bytes());
      }
      run(out.data(), first, last);
      memory = scratch;
      for (const Piece& piece : pieces_) {
        put(piece, memory, first, last);
        memory += rows_ * whole_lines(piece.row_bytes());
      }
    }
  }

 private:
  static void put(const Piece& piece, const char* rows, int64_t first, int64_t last);
  c10::ArrayRef<Piece> pieces_;
  int64_t row_bytes_ = 0, rows_ = 0;
};

}  // namespace triage::fused
