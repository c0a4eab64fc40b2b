#include "runtime/backends/fused/parts/joined_outputs.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "runtime/backends/fused/support/lanes.h"

namespace triage::fused {
namespace {

constexpr int64_t staged_bytes = 32 << 10;  // at a time, besides what the loops have in the cache

int64_t product(const Sizes& sizes, size_t from, size_t to) {
  return std::accumulate(sizes.begin() + from, sizes.begin() + to, int64_t{1}, std::multiplies<>());
}

}  // namespace

bool joined_sizes(const Concatenation& join, c10::ArrayRef<Sizes> pieces, Sizes& sizes) {
  const auto dim = static_cast<size_t>(join.dim);
  sizes = pieces[0];
  for (const Sizes& piece : pieces) {
    if (piece.size() != sizes.size()) return false;
    for (size_t i = 0; i < piece.size(); ++i)
      if (piece[i] != sizes[i] && (join.stacks || i != dim)) return false;
  }
  if (join.stacks) {
    sizes.insert(sizes.begin() + dim, static_cast<int64_t>(pieces.size()));
  } else {
    sizes[dim] = 0;
    for (const Sizes& piece : pieces) sizes[dim] += piece[dim];
  }
  return true;
}

void lay_out(const Concatenation& join, c10::ArrayRef<Sizes> sizes, const at::Tensor& joined,
             c10::SmallVectorImpl<void*>& out, c10::SmallVectorImpl<Piece>& pieces) {
  const auto dim = static_cast<size_t>(join.dim);
  const auto item = static_cast<int64_t>(joined.element_size());
  auto* memory = static_cast<char*>(joined.data_ptr());
  int64_t pitch = 0;
  for (const Sizes& piece : sizes) pitch += product(piece, dim, piece.size()) * item;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t bytes = product(sizes[i], dim, sizes[i].size()) * item;
    if (dim == 0)
      out[join.pieces[i]] = memory;
    else
      pieces.push_back({join.pieces[i], memory, product(sizes[i], 1, dim), bytes, pitch});
    memory += bytes;
  }
}

PieceWriter::PieceWriter(c10::ArrayRef<Piece> pieces) : pieces_(pieces) {
  for (const Piece& piece : pieces) row_bytes_ += whole_lines(piece.row_bytes());
  const int64_t rows = staged_bytes / std::max<int64_t>(row_bytes_, 1) / tile_lanes * tile_lanes;
  rows_ = std::max(rows, tile_lanes);
}

void PieceWriter::put(const Piece& piece, const char* from, int64_t first, int64_t last) {
  char* to = piece.memory + first * piece.count * piece.pitch;
  for (int64_t i = 0; i < (last - first) * piece.count; ++i, from += piece.bytes, to += piece.pitch)
    std::memcpy(to, from, static_cast<size_t>(piece.bytes));
}

}  // namespace triage::fused
