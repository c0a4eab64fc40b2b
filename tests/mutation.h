#pragma once
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

/// Changes of files and texts for tests of what reads them: whatever comes out, a reader gives something whole or an
/// error.
namespace triage::test {

/// How many to try: `bounded`, or TRIAGE_MUTATIONS in a run by hand.
inline int mutations(int bounded) {
  const char* chosen = std::getenv("TRIAGE_MUTATIONS");
  return chosen && *chosen ? std::atoi(chosen) : bounded;
}

/// Calls `check` with each bit of the file changed in turn, one at a time.
template <class Check>
void for_each_changed_bit(const std::string& path, const Check& check) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  file.clear();
  const auto put = [&](size_t at, char byte) {
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte).flush();
  };
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const size_t at = bit / 8;
    put(at, static_cast<char>(bytes[at] ^ 1 << bit % 8));
    check(bit);
    put(at, bytes[at]);
  }
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> originals) : originals_(std::move(originals)) {}

  /// One of the originals with up to four changes: bytes and bits, ranges cut, doubled or taken from another original,
  /// numbers at the ends of their ranges, its end missing.
  std::string next() {
    std::string bytes = pick(originals_);
    for (size_t count = 1 + below(4); count > 0; --count) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t end) { return end == 0 ? 0 : random_() % end; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void change(std::string& bytes) {
    const size_t at = below(bytes.size()), length = std::min(1 + below(1 << below(10)), bytes.size() - at);
    switch (below(8)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 3: {
        const std::string& other = pick(originals_);
        const size_t from = below(other.size());
        bytes.replace(at, below(length + 1), other.substr(from, length));
        break;
      }
      case 4:
        change_number(bytes, at);
        break;
      case 5:
        if (at + 8 <= bytes.size()) bytes.replace(at, 8, 8, below(2) ? '\xff' : '\0');
        break;
      default:
        if (at < bytes.size()) bytes[at] ^= static_cast<char>(below(2) ? 1 << below(8) : 1 + below(255));
    }
  }

  /// The first decimal number from `at` on.
  void change_number(std::string& bytes, size_t at) {
    static const std::vector<std::string> odd = {"0",          "-1",    "1",   "9223372036854775807",  "4294967296",
                                                 "2147483648", "1e308", "nan", "18446744073709551616", "99999"};
    const size_t begin = bytes.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(bytes.find_first_not_of("0123456789", begin), bytes.size());
    bytes.replace(begin, end - begin, pick(odd));
  }

  std::mt19937 random_{1};
  std::vector<std::string> originals_;
};

}  // namespace triage::test
