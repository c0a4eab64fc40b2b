// The .npy format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include <triage/files.h>
#include "runtime/files/dtype.h"
#include "runtime/files/formats.h"

namespace triage::files {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr size_t longest_header = 1u << 16;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// The header is a Python dict literal with exactly three keys:
/// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Header parse() {
    Header header;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      std::string key = string();
      expect(':');
      if (key == "descr")
        header.descr = descr(), seen[0] = true;
      else if (key == "fortran_order")
        header.fortran_order = boolean(), seen[1] = true;
      else if (key == "shape")
        header.shape = shape(), seen[2] = true;
      else
        fail(fmt::format("the unknown key '{}'", key));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("text behind the closing brace");
    if (!seen[0] || !seen[1] || !seen[2]) fail("not all of 'descr', 'fortran_order' and 'shape'");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Malformed(fmt::format("its header has {} (at character {} of \"{}\")", what, at_,
                                text_.substr(0, text_.find_last_not_of(" \n", 100) + 1)));
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("no '{}' where one is expected", c));
  }
  bool word(std::string_view w) {
    skip_space();
    if (text_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }
  std::string string() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail("no string where one is expected");
    size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail("a string that does not end");
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  std::string descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      throw Malformed("it is a structured array; save each field as an array of its own");
    }
    return string();
  }
  bool boolean() {
    if (word("True")) return true;
    if (word("False")) return false;
    fail("no True or False where one is expected");
  }
  std::vector<int64_t> shape() {
    std::vector<int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      sizes.push_back(size());
      if (sizes.size() > 64) fail("a shape of more than 64 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }
  int64_t size() {
    skip_space();
    int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) fail("no size where one is expected");
    at_ = static_cast<size_t>(end - text_.data());
    word("L");  // Python 2 wrote long integers as 3L
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

at::ScalarType dtype_of(const std::string& descr) {
  std::string_view kind = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  std::optional<at::ScalarType> dtype = find_dtype(&DtypeNames::numpy, kind);
  if (dtype && std::string_view("<>|=").find(descr[0]) != std::string_view::npos) return *dtype;
  const char* hint = "convert it first (x.astype(numpy.float32))";
  switch (kind.empty() ? '?' : kind[0]) {
    case 'O':
      hint = "triage does not read arrays of Python objects, because loading them runs code; save numbers";
      break;
    case 'V':
      hint =
          "NumPy saves bfloat16 with this dtype; save it as .pt or .safetensors, or convert it with "
          "x.astype(numpy.float32)";
      break;
    case 'U':
    case 'S':
      hint = "text is not a tensor; save numbers";
      break;
    case 'u':
      hint = "this LibTorch has no such unsigned type; x.astype(numpy.int64) holds all but the largest values";
      break;
    default:
      break;
  }
  throw Malformed(fmt::format("its dtype is '{}', which no tensor has; {}", descr, hint));
}

void swap_bytes(void* data, size_t bytes, size_t width) {
  char* element = static_cast<char*>(data);
  for (char* end = element + bytes; element != end; element += width) std::reverse(element, element + width);
}

Header read_header(const InputFile& file, uint64_t& data_offset) {
  std::string start = file.head(12);
  if (start.compare(0, magic.size(), magic) != 0) {
    throw Malformed(fmt::format("expected a NumPy .npy file, but this is {}", describe_content(file)));
  }
  if (start.size() < 10) throw Malformed("the file ends in its header");
  int major = static_cast<uint8_t>(start[6]);
  if (major < 1 || major > 3) throw Malformed(fmt::format("its format version is {}; expected 1, 2 or 3", major));
  size_t prefix = major == 1 ? 10 : 12;
  if (start.size() < prefix) throw Malformed("the file ends in its header");
  size_t length = 0;
  for (size_t i = prefix; i-- > 8;) length = length << 8 | static_cast<uint8_t>(start[i]);
  if (length > longest_header)
    throw Malformed(fmt::format("its header has {} bytes; the limit is {}", length, longest_header));
  if (prefix + length > file.size()) throw Malformed("the file ends in its header");
  std::string text(length, '\0');
  file.read(prefix, text.data(), length);
  data_offset = prefix + length;
  return HeaderParser(text).parse();
}

}  // namespace

at::Tensor read_npy(const InputFile& file) {
  uint64_t offset = 0;
  Header header = read_header(file, offset);
  at::ScalarType dtype = dtype_of(header.descr);
  size_t width = c10::elementSize(dtype);
  uint64_t bytes = checked_bytes(header.shape, width);
  if (bytes != file.size() - offset) {
    throw Malformed(fmt::format("its header says {} ({}), {} bytes of data, but there are {}; it is {}",
                                dtype_name(dtype), fmt::join(header.shape, ", "), bytes, file.size() - offset,
                                bytes > file.size() - offset ? "truncated" : "damaged, or holds more than one array"));
  }
  std::vector<int64_t> stored = header.shape;
  if (header.fortran_order) std::reverse(stored.begin(), stored.end());
  at::Tensor tensor = at::empty(stored, at::TensorOptions(dtype));
  file.read(offset, tensor.data_ptr(), bytes);
  if (header.descr[0] == '>') swap_bytes(tensor.data_ptr(), bytes, tensor.is_complex() ? width / 2 : width);
  if (dtype == at::kBool) normalize_bools(tensor.data_ptr(), bytes);
  if (!header.fortran_order) return tensor;
  std::vector<int64_t> reversed(stored.size());
  for (size_t i = 0; i < reversed.size(); ++i) reversed[i] = static_cast<int64_t>(reversed.size() - 1 - i);
  return tensor.permute(reversed).contiguous();
}

void write_npy(OutputFile& file, const at::Tensor& tensor) {
  at::Tensor values = plain_values(tensor);
  const DtypeNames* names = names_of(values.scalar_type());
  if (!names || *names->numpy == '\0') {
    throw Malformed(fmt::format(".npy has no {}; write .pt or .safetensors, or convert first (x:to(torch.float32))",
                                dtype_name(values.scalar_type())));
  }
  const char* order = c10::elementSize(values.scalar_type()) == 1 ? "|" : "<";
  std::string shape = fmt::format("{}", fmt::join(values.sizes(), ", "));
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", order,
                                   names->numpy, shape, values.dim() == 1 ? "," : "");
  size_t prefix = magic.size() + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');  // data starts at a multiple of 64
  header += '\n';
  std::string start(magic);
  start += {'\1', '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  start += header;
  file.write(start.data(), start.size());
  file.write(values.data_ptr(), values.numel() * values.element_size());
}

}  // namespace triage::files
