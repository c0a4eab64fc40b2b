// Reads what torch.save writes: a zip archive with `data.pkl` (the structure) and `data/KEY` (one record a storage).
// Writes the same so that Python reads it with weights_only=True: a plain pickle (no TorchScript type
// tags, which that mode refuses) and one record a tensor.
#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <triage/files.h>

#include <exception>
#include <unordered_map>

#include "runtime/files/dtype.h"
#include "runtime/files/formats.h"
#include "runtime/files/pickle.h"
#include "runtime/files/zip.h"

namespace triage::files {
namespace {

using Kind = PickleObject::Kind;

constexpr int deepest_nesting = 64;
constexpr size_t most_values = 1'000'000;  // a few bytes of pickle can share their way to 2^n values
constexpr size_t largest_structure = size_t{64} << 20;
constexpr size_t most_text = size_t{64} << 20;  // the same string may stand in many places
constexpr size_t most_dimensions = 64;
constexpr size_t longest_note = size_t{1} << 20;
constexpr const char* note_record = "triage.json";  // beside data.pkl

struct PtStorage {
  c10::Storage storage;
  at::ScalarType dtype;
  size_t elements;
};

class PtReader {
 public:
  PtReader(const ZipArchive& archive, const Pickle& pickle, const std::string& key)
      : archive_(archive), pickle_(pickle), key_(key) {}

  c10::IValue read() { return value(pickle_.root, 0); }

 private:
  static void check_depth(int depth) {
    if (depth > deepest_nesting)
      throw Malformed(fmt::format("its values are nested more than {} deep", deepest_nesting));
  }

  c10::IValue value(PickleRef ref, int depth) {
    check_depth(depth);
    if (++values_ > most_values) throw Malformed(fmt::format("it holds more than {} values", most_values));
    const PickleObject& object = pickle_.at(ref);
    switch (object.kind) {
      case Kind::none:
        return {};
      case Kind::boolean:
        return object.integer != 0;
      case Kind::integer:
        return object.integer;
      case Kind::real:
        return object.real;
      case Kind::string:
        return text(object.text);
      case Kind::tuple:
        return tuple(object.items, depth);
      case Kind::list:
        return list(object.items, depth);
      case Kind::dict:
        return dict(object.pairs, depth);
      case Kind::call:
        return call(ref, depth);
      case Kind::global:
        throw NotRead(fmt::format("it holds the Python object {}{}", object.text, what_is_read));
      case Kind::other:
        throw NotRead(fmt::format("it holds {}{}", object.text, what_is_read));
      case Kind::persistent:
        throw NotRead(fmt::format("it holds a bare storage{}", what_is_read));
    }
    throw Malformed("its pickle is damaged");
  }

  /// An entry of a container. One of a kind that is not read spoils no other.
  c10::IValue entry(PickleRef ref, int depth) {
    try {
      return value(ref, depth + 1);
    } catch (const NotRead& error) {
      return unread(error.what());
    }
  }

  c10::IValue unread(const std::string& why) {
    constexpr size_t most_unread = 10'000;
    if (++unread_ > most_unread) throw Malformed(why);
    return not_read(why);
  }

  c10::IValue tuple(const std::vector<PickleRef>& items, int depth) {
    std::vector<c10::IValue> values;
    for (PickleRef item : items) values.push_back(entry(item, depth));
    return c10::ivalue::Tuple::create(std::move(values));
  }

  c10::IValue list(const std::vector<PickleRef>& items, int depth) {
    c10::impl::GenericList values(c10::AnyType::get());
    for (PickleRef item : items) values.push_back(entry(item, depth));
    return values;
  }

  /// What names an entry of a dict: nothing where its key is neither a text nor an integer.
  std::optional<std::string> name_of(PickleRef key) const {
    const PickleObject& object = pickle_.at(key);
    if (object.kind == Kind::string) return object.text;
    return object.kind == Kind::integer ? std::optional(std::to_string(object.integer)) : std::nullopt;
  }

  /// Whether the reader was asked for this entry of the whole value, or for one inside of it (`entry:inner`).
  bool is_asked_for(PickleRef key) const {
    const auto name = name_of(key);
    return name && key_.compare(0, name->size(), *name) == 0 &&
           (key_.size() == name->size() || key_[name->size()] == ':');
  }

  c10::IValue dict(const std::vector<PickleRef>& pairs, int depth) {
    bool some_asked_for = false;
    for (size_t i = 0; depth == 0 && !key_.empty() && i + 1 < pairs.size(); i += 2)
      some_asked_for = some_asked_for || is_asked_for(pairs[i]);
    bool integers = !pairs.empty();
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) integers &= pickle_.at(pairs[i]).kind == Kind::integer;
    c10::TypePtr key_type = integers ? c10::TypePtr(c10::IntType::get()) : c10::TypePtr(c10::StringType::get());
    c10::impl::GenericDict values(key_type, c10::AnyType::get());
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (some_asked_for && !is_asked_for(pairs[i])) continue;
      const auto name = name_of(pairs[i]);
      c10::IValue key = integers ? value(pairs[i], depth + 1) : text(name.value_or(fmt::format("<entry {}>", i / 2)));
      c10::IValue read = name ? entry(pairs[i + 1], depth) : unread("its key is neither a text nor an integer");
      if (values.contains(key)) read = unread("two entries of its dict have this name");
      values.insert_or_assign(std::move(key), std::move(read));
    }
    return values;
  }

  c10::IValue text(const std::string& text) {
    text_ += text.size();
    if (text_ > most_text) throw Malformed(fmt::format("its strings have more than {} bytes", most_text));
    return text;
  }

  /// The few functions that torch.save has called when a file is read; each means one thing here.
  c10::IValue call(PickleRef ref, int depth) {
    auto known = tensors_.find(ref);
    if (known != tensors_.end()) return known->second;
    const PickleObject& object = pickle_.at(ref);
    const std::string& function = global(object.items[0]);
    const std::vector<PickleRef>& arguments = items(object.items[1], "arguments");
    if (function == "collections.OrderedDict") return dict(object.pairs, depth);
    if (function == "torch.Size") return value(object.items[1], depth + 1);
    std::optional<at::Tensor> result = tensor(function, arguments, depth);
    if (!result) refuse(function);
    return tensors_.emplace(ref, *result).first->second;
  }

  std::optional<at::Tensor> tensor(const std::string& function, const std::vector<PickleRef>& arguments, int depth) {
    check_depth(depth);
    if (function == "torch._utils._rebuild_tensor_v2" || function == "torch._utils._rebuild_tensor")
      return strided(arguments, std::nullopt, 6);
    if (function == "torch._utils._rebuild_tensor_v3") return strided(arguments, named_dtype(arguments), 7);
    if (function == "torch._utils._rebuild_parameter" && arguments.size() >= 2) {
      at::Tensor data = nested_tensor(arguments[0], depth);
      return data.alias().set_requires_grad(integer(arguments[1]) != 0);
    }
    // A tensor with Python attributes: (function, type, its arguments, attributes).
    if (function == "torch._tensor._rebuild_from_type_v2" && arguments.size() == 4) {
      return tensor(global(arguments[0]), items(arguments[2], "arguments of a tensor"), depth + 1);
    }
    return std::nullopt;
  }

  at::Tensor nested_tensor(PickleRef ref, int depth) {
    c10::IValue inner = value(ref, depth + 1);
    if (!inner.isTensor()) throw Malformed("a parameter in it is not made from a tensor");
    return inner.toTensor();
  }

  /// Of dtypes without a class of storages: (storage, offset, sizes, strides, requires_grad, hooks, dtype[, metadata])
  at::ScalarType named_dtype(const std::vector<PickleRef>& arguments) const {
    const bool named = arguments.size() >= 7 && pickle_.at(arguments[6]).kind == Kind::global;
    const std::string name = named ? pickle_.at(arguments[6]).text : "uint16, float8 or the like";
    const auto dtype = find_dtype(&DtypeNames::torch, named ? std::string_view(name).substr(name.rfind('.') + 1) : "");
    if (dtype) return *dtype;
    throw NotRead(
        fmt::format("it holds a tensor of {}, a dtype that triage does not read from .pt files with this "
                    "LibTorch; convert it before saving (x.to(torch.float32))",
                    name));
  }

  /// (storage, offset, sizes, strides, requires_grad, hooks[, {"conj": True, "neg": True}], of which the last is number
  /// `metadata`)
  at::Tensor strided(const std::vector<PickleRef>& arguments, std::optional<at::ScalarType> dtype, size_t metadata) {
    if (arguments.size() < 4) throw Malformed("a tensor in it is made from too few arguments");
    const PtStorage& from = storage(arguments[0], dtype);
    int64_t offset = integer(arguments[1]);
    std::vector<int64_t> sizes = integers(arguments[2]);
    std::vector<int64_t> strides = integers(arguments[3]);
    check_bounds(from, offset, sizes, strides);
    at::Tensor result = at::empty({0}, at::TensorOptions(from.dtype)).set_(from.storage, offset, sizes, strides);
    if (arguments.size() > metadata) set_bits(result, pickle_.at(arguments[metadata]), from);
    if (arguments.size() >= 5 && integer(arguments[4]) != 0) {
      if (!result.is_floating_point() && !result.is_complex()) throw Malformed("an integer tensor in it requires grad");
      result.set_requires_grad(true);
    }
    return result;
  }

  /// Conjugated or negated, the values are other ones, in memory of their own.
  void set_bits(at::Tensor& tensor, const PickleObject& metadata, const PtStorage& from) {
    constexpr size_t most_bits = 16, most_copies = 8;
    if (metadata.pairs.size() > most_bits) throw Malformed("a tensor in it has attributes that no tensor has");
    for (size_t i = 0; i + 1 < metadata.pairs.size(); i += 2) {
      const PickleObject& name = pickle_.at(metadata.pairs[i]);
      if (pickle_.at(metadata.pairs[i + 1]).integer == 0) continue;
      const auto count = static_cast<size_t>(tensor.numel());
      if (count > from.elements)
        throw Malformed("a tensor in it is expanded and conjugated or negated; save x.resolve_conj().resolve_neg()");
      if ((copied_[&from] += count) > most_copies * from.elements)
        throw Malformed(
            "many tensors in it are conjugated or negated and share their memory; save x.resolve_conj().resolve_neg()");
      if (name.text == "conj" && tensor.is_complex()) tensor = tensor.conj().resolve_conj();
      if (name.text == "neg") tensor = tensor.neg();
    }
  }

  /// The pickle says which elements the tensor covers, the archive how many bytes there are: the two need not agree.
  static void check_bounds(const PtStorage& from, int64_t offset, const std::vector<int64_t>& sizes,
                           const std::vector<int64_t>& strides) {
    if (sizes.size() != strides.size()) throw Malformed("a tensor in it has strides that do not match its shape");
    uint64_t bytes = checked_bytes(sizes, 1);
    if (offset < 0) throw Malformed("a tensor in it starts before its storage");
    unsigned __int128 last = static_cast<uint64_t>(offset);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (strides[i] < 0) throw Malformed("a tensor in it has a negative stride");
      if (sizes[i] > 0) last += static_cast<unsigned __int128>(sizes[i] - 1) * static_cast<uint64_t>(strides[i]);
    }
    bool inside = bytes == 0 ? static_cast<uint64_t>(offset) <= from.elements : last < from.elements;
    if (!inside) {
      throw Malformed(
          fmt::format("a {} tensor of shape ({}) extends beyond its record, which holds {} elements; the file is "
                      "damaged or malicious",
                      dtype_name(from.dtype), fmt::join(sizes, ", "), from.elements));
    }
  }

  /// ("storage", class, key, device, number of elements). `dtype`: of a storage of bytes, which has none itself.
  const PtStorage& storage(PickleRef ref, std::optional<at::ScalarType> dtype) {
    const PickleObject& object = pickle_.at(ref);
    if (object.kind != Kind::persistent) throw NotRead("it holds a tensor without memory of its own");
    const std::vector<PickleRef>& id = items(object.items[0], "id of a storage");
    if (id.size() < 3 || pickle_.at(id[2]).kind != Kind::string)
      throw Malformed("the id of a storage in it is damaged");
    std::string class_name = global(id[1]);
    class_name = class_name.substr(class_name.rfind('.') + 1);
    if (!dtype) dtype = find_dtype(&DtypeNames::storage, class_name);
    if (!dtype) {
      throw NotRead(fmt::format(
          "it holds a tensor of {}, a dtype that triage does not read; convert it before saving (x.to(torch.float32))",
          class_name));
    }
    const std::string& key = pickle_.at(id[2]).text;
    if (key.size() > 1000) throw Malformed("the id of a storage in it is damaged");
    auto found = storages_.find(key);
    if (found == storages_.end()) found = storages_.emplace(key, read_storage(key, *dtype)).first;
    if (found->second.dtype != *dtype) throw Malformed("one storage in it is declared with two dtypes");
    return found->second;
  }

  PtStorage read_storage(const std::string& key, at::ScalarType dtype) {
    std::string name = "data/" + key;
    const ZipArchive::Member* record = archive_.find(name);
    if (!record) throw Malformed(fmt::format("the record \"{}\" that a tensor needs is missing", name));
    at::Tensor bytes = at::empty({static_cast<int64_t>(record->size)}, at::TensorOptions(at::kByte));
    archive_.read(*record, bytes.data_ptr());
    if (dtype == at::kBool) normalize_bools(bytes.data_ptr(), record->size);
    return {bytes.storage(), dtype, record->size / c10::elementSize(dtype)};
  }

  const std::string& global(PickleRef ref) const {
    const PickleObject& object = pickle_.at(ref);
    if (object.kind != Kind::global) throw Malformed("its pickle calls something other than a function");
    return object.text;
  }
  const std::vector<PickleRef>& items(PickleRef ref, const char* of) const {
    const PickleObject& object = pickle_.at(ref);
    if (object.kind != Kind::tuple && object.kind != Kind::list)
      throw Malformed(fmt::format("its pickle is damaged: the {} are not a tuple", of));
    return object.items;
  }
  int64_t integer(PickleRef ref) const {
    const PickleObject& object = pickle_.at(ref);
    if (object.kind != Kind::integer && object.kind != Kind::boolean)
      throw Malformed("a tensor in it is described by something other than numbers");
    return object.integer;
  }
  static PickleRef only(const std::vector<PickleRef>& items) {
    if (items.size() != 1) throw Malformed("the shape of a tensor in it is damaged");
    return items[0];
  }
  std::vector<int64_t> integers(PickleRef ref) const {
    const PickleObject& object = pickle_.at(ref);
    PickleRef from = ref;
    if (object.kind == Kind::call && global(object.items[0]) == "torch.Size")
      from = only(items(object.items[1], "sizes"));
    const std::vector<PickleRef>& sizes = items(from, "sizes");
    if (sizes.size() > most_dimensions)
      throw Malformed(fmt::format("a tensor in it has {} dimensions; the limit is {}", sizes.size(), most_dimensions));
    std::vector<int64_t> result;
    for (PickleRef item : sizes) result.push_back(integer(item));
    return result;
  }

  [[noreturn]] void refuse(const std::string& function) const {
    if (function.find("sparse") != std::string::npos)
      throw NotRead("it holds a sparse tensor; save x.to_dense() instead");
    if (function.find("qtensor") != std::string::npos)
      throw NotRead("it holds a quantized tensor; save x.dequantize() instead");
    if (function.compare(0, 5, "numpy") == 0)
      throw NotRead(
          "it holds a NumPy array or scalar; save torch.from_numpy(x), or x.item(), or use numpy.save and .npy");
    throw NotRead(fmt::format("it holds a Python object ({}){}", function, what_is_read));
  }

  static constexpr const char* what_is_read =
      "; triage reads tensors, numbers, strings, and lists, tuples and dicts of them. Save the state_dict() of a "
      "module";

  const ZipArchive& archive_;
  const Pickle& pickle_;
  const std::string& key_;
  std::unordered_map<std::string, PtStorage> storages_;
  std::unordered_map<PickleRef, at::Tensor> tensors_;
  std::unordered_map<const PtStorage*, size_t> copied_;  // elements of a storage that stand in memory of their own
  size_t values_ = 0, text_ = 0, unread_ = 0;
};

void check_kind(const InputFile& file) {
  std::string head = file.head(4);
  std::string content = describe_content(file);
  if (content == "a NumPy .npz archive")
    throw Malformed("it is a NumPy .npz archive; save each array with numpy.save as an .npy file");
  if (head.compare(0, 4, std::string_view("PK\3\4", 4)) == 0) return;
  if (!head.empty() && head[0] == '\x80') {
    throw Malformed(
        "it is a bare pickle: torch.save before PyTorch 1.6 wrote such files, and pickle.dump does; load it in Python "
        "and "
        "save it again with torch.save(x, path)");
  }
  throw Malformed(fmt::format("expected what torch.save writes (a zip archive), but this is {}", content));
}

void check_byte_order(const ZipArchive& archive) {
  const ZipArchive::Member* record = archive.find("byteorder");
  if (!record) return;
  if (record->size > 16 || archive.read(*record) != "little")
    throw Malformed("it was written on a big-endian machine; save it again on a little-endian one");
}

}  // namespace

c10::IValue read_pt(const InputFile& file, const std::string& key) {
  check_kind(file);
  const ZipArchive archive(file);
  const ZipArchive::Member* structure = archive.find("data.pkl");
  if (!structure) throw Malformed("it is a zip archive without data.pkl, so torch.save did not write it");
  if (archive.find("constants.pkl")) throw Malformed(is_torch_script);
  check_byte_order(archive);
  if (structure->size > largest_structure)
    throw Malformed(fmt::format("its data.pkl has {} bytes; the limit is {}", structure->size, largest_structure));
  const std::string bytes = archive.read(*structure);
  const Pickle pickle = parse_pickle(bytes);
  return PtReader(archive, pickle, key).read();
}

std::string read_pt_note(const InputFile& file) {
  check_kind(file);
  const ZipArchive archive(file);
  const ZipArchive::Member* const note = archive.find(note_record);
  if (!note) return {};
  if (note->size > longest_note)
    throw Malformed(fmt::format("its {} has {} bytes; the limit is {}", note_record, note->size, longest_note));
  return archive.read(*note);
}

namespace {

/// The value with every tensor in plain memory, in generic containers. Throws Malformed where .pt cannot hold it.
c10::IValue plain(const c10::IValue& value, int depth = 0) {
  if (depth > 64) throw Malformed("the value is nested more than 64 deep");
  if (value.isTensor()) {
    at::Tensor tensor = plain_values(value.toTensor());
    const DtypeNames* names = names_of(tensor.scalar_type());
    if (!names || *names->storage == '\0') {
      throw Malformed(
          fmt::format("the tensor has dtype {}, which .pt files cannot hold; convert it first, or write .safetensors",
                      dtype_name(tensor.scalar_type())));
    }
    // Rows of a large tensor are contiguous too; only the values go to the file, not the storage around them.
    bool whole = tensor.storage().nbytes() == tensor.nbytes();
    return (whole ? tensor : tensor.clone()).set_requires_grad(false);
  }
  if (value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isString()) return value;
  if (value.isTuple()) {
    std::vector<c10::IValue> items;
    for (const c10::IValue& item : value.toTupleRef().elements()) items.push_back(plain(item, depth + 1));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  if (value.isList()) {
    c10::impl::GenericList items(c10::AnyType::get());
    for (const c10::IValue& item : value.toListRef()) items.push_back(plain(item, depth + 1));
    return items;
  }
  if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    c10::impl::GenericDict pairs(dict.keyType(), c10::AnyType::get());
    for (const auto& pair : dict) pairs.insert(pair.key(), plain(pair.value(), depth + 1));
    return pairs;
  }
  throw Malformed(fmt::format(
      "cannot write a value of type {}; expected tensors, numbers, strings, or lists, tuples and dicts of them",
      value.tagKind()));
}

}  // namespace

void write_zip(OutputFile& file, const std::function<void(caffe2::serialize::PyTorchStreamWriter&)>& fill) {
  // The writer finishes its archive in its destructor, where an exception would end the process: disk errors wait.
  std::exception_ptr failure;
  {
    caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t count) {
      try {
        if (!failure) file.write(data, count);
      } catch (const std::exception&) {
        failure = std::current_exception();
      }
      return count;
    });
    fill(archive);
    archive.writeEndOfFile();
  }
  if (failure) std::rethrow_exception(failure);
}

void write_pt(OutputFile& file, const c10::IValue& value, const std::string& note) {
  c10::IValue content = plain(value);
  std::string pickle;
  std::vector<at::Tensor> tensors;
  torch::jit::Pickler pickler([&](const char* bytes, size_t count) { pickle.append(bytes, count); }, nullptr, nullptr,
                              nullptr,
                              [&](const at::Tensor& tensor) {
                                tensors.push_back(tensor);
                                return std::to_string(tensors.size() - 1);
                              },
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(content);
  pickler.stop();
  write_zip(file, [&](caffe2::serialize::PyTorchStreamWriter& archive) {
    archive.writeRecord("data.pkl", pickle.data(), pickle.size());
    archive.writeRecord("byteorder", "little", 6);
    if (!note.empty()) archive.writeRecord(note_record, note.data(), note.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      archive.writeRecord(fmt::format("data/{}", i), tensors[i].data_ptr(), tensors[i].nbytes());
    }
  });
}

}  // namespace triage::files
