#include "runtime/files/pickle.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <unordered_map>

#include "runtime/files/disk.h"

namespace triage::files {
namespace {

using Kind = PickleObject::Kind;

constexpr size_t most_objects = 2'000'000;  // of some 140 bytes each
constexpr size_t longest_name = 1000;       // of a class: it is put together of strings that may stand in many places

class PickleParser {
 public:
  explicit PickleParser(std::string_view bytes) : bytes_(bytes) {}

  Pickle parse() {
    while (step()) {
    }
    if (stack_.size() != 1) throw Malformed("the pickle ends with a stack that does not hold one object");
    pickle_.root = stack_.back();
    return std::move(pickle_);
  }

 private:
  // One opcode a line, so that the functions below read as the tables that they are.
  // clang-format off

  /// One opcode; false at STOP. Names as in Python's pickletools.
  bool step() {
    uint8_t opcode = byte();
    switch (opcode) {
      case 0x80: byte(); return true;                                  // PROTO
      case 0x95: take(8); return true;                                 // FRAME
      case '.': return false;                                          // STOP
      case '(': push_mark(); return true;                              // MARK
      case '0': pop(); return true;                                    // POP
      case '1': pop_mark(); return true;                               // POP_MARK
      case '2': push_ref(top()); return true;                          // DUP
      default: return constant(opcode) || container(opcode) || memo(opcode) || object(opcode) || unknown(opcode);
    }
  }

  bool constant(uint8_t opcode) {
    switch (opcode) {
      case 'N': push({}); return true;                                 // NONE
      case 0x88: push_integer(Kind::boolean, 1); return true;          // NEWTRUE
      case 0x89: push_integer(Kind::boolean, 0); return true;          // NEWFALSE
      case 'J': push_integer(Kind::integer, static_cast<int32_t>(number(4))); return true;   // BININT
      case 'K': push_integer(Kind::integer, static_cast<int64_t>(number(1))); return true;   // BININT1
      case 'M': push_integer(Kind::integer, static_cast<int64_t>(number(2))); return true;   // BININT2
      case 0x8a: push_long(number(1)); return true;                    // LONG1
      case 0x8b: push_long(number(4)); return true;                    // LONG4
      case 'G': push_real(); return true;                              // BINFLOAT
      case 'X': push_text(Kind::string, take(number(4))); return true; // BINUNICODE
      case 0x8c: push_text(Kind::string, take(number(1))); return true;   // SHORT_BINUNICODE
      case 0x8d: push_text(Kind::string, take(number(8))); return true;   // BINUNICODE8
      case 'C': take(number(1)); push_text(Kind::other, "bytes"); return true;   // SHORT_BINBYTES
      case 'B': take(number(4)); push_text(Kind::other, "bytes"); return true;   // BINBYTES
      case 0x8e:                                                          // BINBYTES8
      case 0x96: take(number(8)); push_text(Kind::other, "bytes"); return true;  // BYTEARRAY8
      default: return false;
    }
  }

  bool container(uint8_t opcode) {
    switch (opcode) {
      case ')': push_items(Kind::tuple, {}); return true;              // EMPTY_TUPLE
      case ']': push_items(Kind::list, {}); return true;               // EMPTY_LIST
      case '}': push_items(Kind::dict, {}); return true;               // EMPTY_DICT
      case 0x8f: push_text(Kind::other, "a set"); return true;         // EMPTY_SET
      case 0x90: pop_mark(); top(); return true;                       // ADDITEMS: of a set
      case 0x91: pop_mark(); push_text(Kind::other, "a set"); return true;   // FROZENSET
      case 't': push_items(Kind::tuple, pop_mark()); return true;      // TUPLE
      case 'l': push_items(Kind::list, pop_mark()); return true;       // LIST
      case 0x85: push_items(Kind::tuple, pop(1)); return true;         // TUPLE1
      case 0x86: push_items(Kind::tuple, pop(2)); return true;         // TUPLE2
      case 0x87: push_items(Kind::tuple, pop(3)); return true;         // TUPLE3
      case 'a': append(pop(1)); return true;                           // APPEND
      case 'e': append(pop_mark()); return true;                       // APPENDS
      case 's': set_items(pop(2)); return true;                        // SETITEM
      case 'u': set_items(pop_mark()); return true;                    // SETITEMS
      default: return false;
    }
  }

  bool memo(uint8_t opcode) {
    switch (opcode) {
      case 'q': remember(number(1)); return true;                      // BINPUT
      case 'r': remember(number(4)); return true;                      // LONG_BINPUT
      case 0x94: remember(memo_.size()); return true;                  // MEMOIZE
      case 'h': recall(number(1)); return true;                        // BINGET
      case 'j': recall(number(4)); return true;                        // LONG_BINGET
      default: return false;
    }
  }

  bool object(uint8_t opcode) {
    switch (opcode) {
      case 'c': {                                                      // GLOBAL
        std::string_view module = line();
        push_global(module, line());
        return true;
      }
      case 0x93: {                                                     // STACK_GLOBAL
        auto names = pop(2);
        push_global(text_of(names[0]), text_of(names[1]));
        return true;
      }
      case 'R':                                                        // REDUCE
      case 0x81: push_items(Kind::call, pop(2)); return true;          // NEWOBJ
      case 0x92: push_items(Kind::call, pop(3)); return true;          // NEWOBJ_EX: arguments by name come third
      case 'b': pop(1); top(); return true;                            // BUILD: attributes of an object are not kept
      case 'Q': push_items(Kind::persistent, pop(1)); return true;     // BINPERSID
      default: return false;
    }
  }

  // clang-format on

  bool unknown(uint8_t opcode) const {
    throw Malformed(
        fmt::format("the pickle has the opcode 0x{:02x} at byte {}, which torch.save does not write", opcode, at_ - 1));
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_)
      throw Malformed(fmt::format("the pickle ends in the middle of a value at byte {}", at_));
    std::string_view result = bytes_.substr(at_, count);
    at_ += count;
    return result;
  }
  uint8_t byte() { return static_cast<uint8_t>(take(1)[0]); }
  uint64_t number(int width) {
    std::string_view digits = take(static_cast<uint64_t>(width));
    uint64_t value = 0;
    for (int i = width - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(digits[static_cast<size_t>(i)]);
    return value;
  }
  std::string_view line() {
    size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) throw Malformed("the pickle ends in the middle of a name");
    std::string_view result = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return result;
  }

  PickleRef top() const {
    if (stack_.size() <= floor())
      throw Malformed(fmt::format("the pickle pops from an empty stack at byte {}", at_ - 1));
    return stack_.back();
  }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void pop() {
    top();
    stack_.pop_back();
  }
  std::vector<PickleRef> pop(size_t count) {
    if (stack_.size() - floor() < count)
      throw Malformed(fmt::format("the pickle pops from an empty stack at byte {}", at_ - 1));
    std::vector<PickleRef> items(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return items;
  }
  std::vector<PickleRef> pop_mark() {
    if (marks_.empty())
      throw Malformed(fmt::format("the pickle pops to a mark that was never set, at byte {}", at_ - 1));
    std::vector<PickleRef> items = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  static void check_room(size_t count) {
    if (count >= most_objects) throw Malformed(fmt::format("the pickle makes more than {} objects", most_objects));
  }
  void push_mark() {
    check_room(marks_.size());
    marks_.push_back(stack_.size());
  }
  void push_ref(PickleRef ref) {
    check_room(stack_.size());
    stack_.push_back(ref);
  }
  void push(PickleObject object) {
    check_room(pickle_.objects.size());
    push_ref(static_cast<PickleRef>(pickle_.objects.size()));
    pickle_.objects.push_back(std::move(object));
  }
  void push_integer(Kind kind, int64_t value) {
    PickleObject object{kind};
    object.integer = value;
    push(std::move(object));
  }
  void push_long(uint64_t width) {
    if (width > 8) {
      take(width);
      push_text(Kind::other, "an integer of more than 64 bits");
      return;
    }
    const int shift = 64 - 8 * static_cast<int>(width);
    const uint64_t digits = number(static_cast<int>(width));
    push_integer(Kind::integer, width == 0 ? 0 : static_cast<int64_t>(digits << shift) >> shift);  // extends the sign
  }
  void push_real() {
    uint64_t bits = 0;
    for (char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);  // big-endian, unlike all the rest
    PickleObject object{Kind::real};
    object.real = std::bit_cast<double>(bits);
    push(std::move(object));
  }
  void push_text(Kind kind, std::string_view text) {
    PickleObject object{kind};
    object.text = text;
    push(std::move(object));
  }
  void push_global(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > longest_name) throw Malformed("the pickle has a class name that is too long");
    push_text(Kind::global, fmt::format("{}.{}", module, name));
  }
  void push_items(Kind kind, std::vector<PickleRef> items) {
    PickleObject object{kind};
    object.items = std::move(items);
    push(std::move(object));
  }

  void append(const std::vector<PickleRef>& items) {
    PickleObject& list = pickle_.objects[top()];
    if (list.kind == Kind::call) return;  // a class made from a list, which nobody reads
    if (list.kind != Kind::list) throw Malformed("the pickle appends to something other than a list");
    list.items.insert(list.items.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<PickleRef>& pairs) {
    PickleObject& dict = pickle_.objects[top()];
    if (dict.kind != Kind::dict && dict.kind != Kind::call)
      throw Malformed("the pickle sets a key of something other than a dict");
    if (pairs.size() % 2 != 0) throw Malformed("the pickle sets a key without a value");
    dict.pairs.insert(dict.pairs.end(), pairs.begin(), pairs.end());
  }
  void remember(uint64_t slot) {
    check_room(memo_.size());
    memo_[slot] = top();
  }
  void recall(uint64_t slot) {
    auto found = memo_.find(slot);
    if (found == memo_.end())
      throw Malformed(fmt::format("the pickle refers to memo {}, which was never stored", slot));
    push_ref(found->second);
  }
  const std::string& text_of(PickleRef ref) const {
    const PickleObject& object = pickle_.at(ref);
    if (object.kind != Kind::string) throw Malformed("the pickle has a class name that is not text");
    return object.text;
  }

  std::string_view bytes_;
  size_t at_ = 0;
  Pickle pickle_;
  std::vector<PickleRef> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleRef> memo_;
};

}  // namespace

Pickle parse_pickle(std::string_view bytes) { return PickleParser(bytes).parse(); }

}  // namespace triage::files
