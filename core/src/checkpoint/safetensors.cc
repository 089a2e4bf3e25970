#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "config/json.h"

namespace tessera::checkpoint {
namespace {

using json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeader = 100'000'000;  // the limit of the format's own readers
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<DType, const char*>, 7> kTypes{{{DType::kFloat32, "F32"},
                                                               {DType::kFloat64, "F64"},
                                                               {DType::kFloat16, "F16"},
                                                               {DType::kBFloat16, "BF16"},
                                                               {DType::kInt32, "I32"},
                                                               {DType::kInt64, "I64"},
                                                               {DType::kUInt8, "U8"}}};

const char* type_name(DType dtype) {
  for (const auto& [type, name] : kTypes) {
    if (type == dtype) return name;
  }
  fail(Code::kUnimplemented, "safetensors has no type ", to_string(dtype));
}

// Parses one file's header. Every error names the file.
class HeaderParser {
 public:
  explicit HeaderParser(const InputFile& file) : file_(file) {}

  StoredTensors parse() {
    const json header = read_json();
    const int64_t data = file_.size() - data_begin_;
    std::vector<std::pair<int64_t, int64_t>> ranges;
    StoredTensors tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) continue;
      const StoredTensor t = parse_tensor(name, entry, data);
      ranges.emplace_back(t.offset, t.offset + t.bytes());
      tensors.emplace(name, t);
    }
    std::sort(ranges.begin(), ranges.end());
    int64_t end = data_begin_;
    for (const auto& [first, last] : ranges) {
      if (first != end) damaged(str_cat(first < end ? "tensors overlap" : "there is a gap", " at byte ", first));
      end = last;
    }
    if (end != file_.size()) damaged(str_cat("its tensors end at byte ", end, ", and the file at ", file_.size()));
    return tensors;
  }

 private:
  template <class... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    fail(Code::kDataLoss, file_.path(), " is not a whole safetensors file: ", parts...);
  }

  json read_json() {
    if (file_.size() < kLengthBytes) damaged("it has ", file_.size(), " bytes");
    refuse_torch_save();
    uint64_t length = 0;
    file_.read_at(0, &length, kLengthBytes);
    if (length > static_cast<uint64_t>(std::min(kMaxHeader, file_.size() - kLengthBytes))) {
      damaged("its header claims ", length, " bytes, and the file has ", file_.size());
    }
    std::string text(length, '\0');
    file_.read_at(kLengthBytes, text.data(), static_cast<int64_t>(length));
    data_begin_ = kLengthBytes + static_cast<int64_t>(length);
    json header = config::parse_json<json>(text, {file_.path() + ": its header", Code::kDataLoss});
    if (!header.is_object()) damaged("its header is not a JSON object");
    return header;
  }

  // torch.save() writes a zip archive; older versions wrote a pickle. If a length happens to have these bytes, a header
  // follows.
  void refuse_torch_save() const {
    constexpr std::string_view kZip = "PK\x03\x04", kPickle = "\x80\x02\x8a\x0a";
    char begin[kLengthBytes + 1] = {};
    file_.read_at(0, begin, std::min<int64_t>(sizeof(begin), file_.size()));
    const std::string_view magic(begin, kZip.size());
    if ((magic != kZip && magic != kPickle) || begin[kLengthBytes] == '{') return;
    fail(Code::kInvalidArgument, file_.path(),
         " is a file of torch.save, not of safetensors: convert it in Python with "
         "safetensors.torch.save_file(torch.load(\"",
         file_.path(), "\", weights_only=True), \"model.safetensors\")");
  }

  StoredTensor parse_tensor(const std::string& name, const json& entry, int64_t data) const {
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
      damaged("tensor \"", name, "\" needs dtype, shape and data_offsets");
    StoredTensor t;
    const auto type =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& k) { return entry["dtype"] == k.second; });
    if (type == kTypes.end())
      damaged("tensor \"", name, "\" has the unknown type ", entry["dtype"].dump().substr(0, 60));
    t.dtype = type->first;
    int64_t bytes = size_of(t.dtype);
    if (!entry["shape"].is_array()) damaged("tensor \"", name, "\" has no list as shape");
    for (const json& size : entry["shape"]) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX)
        damaged("tensor \"", name, "\" has ", size.dump().substr(0, 60), " in its shape");
      t.shape.push_back(size.get<int64_t>());
      if (__builtin_mul_overflow(bytes, t.shape.back(), &bytes)) damaged("tensor \"", name, "\" is too large");
    }
    const json& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      damaged("tensor \"", name, "\" needs two offsets");
    const uint64_t first = offsets[0].get<uint64_t>(), last = offsets[1].get<uint64_t>();
    if (last > static_cast<uint64_t>(data) || first > last)
      damaged("tensor \"", name, "\" lies at [", first, ", ", last, ") of ", data, " bytes");
    if (static_cast<int64_t>(last - first) != bytes)
      damaged("tensor \"", name, "\" has ", last - first, " bytes, its shape needs ", bytes);
    t.offset = data_begin_ + static_cast<int64_t>(first);
    return t;
  }

  const InputFile& file_;
  int64_t data_begin_ = 0;
};

}  // namespace

int64_t StoredTensor::bytes() const {
  int64_t n = size_of(dtype);
  for (int64_t size : shape) n *= size;
  return n;
}

std::string describe(const StoredTensor& tensor) {
  std::string out = str_cat(to_string(tensor.dtype), " [");
  for (size_t i = 0; i < tensor.shape.size(); ++i) out += str_cat(i ? ", " : "", tensor.shape[i]);
  return out + "]";
}

SafetensorsWriter::Laid SafetensorsWriter::lay_out(StoredTensors tensors) {
  std::vector<std::pair<const std::string, StoredTensor>*> order;
  for (auto& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return size_of(a->second.dtype) > size_of(b->second.dtype); });
  json header = json::object();
  int64_t end = 0;
  for (auto* entry : order) {
    StoredTensor& t = entry->second;
    t.offset = end;
    end += t.bytes();
    header[entry->first] = {{"dtype", type_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {t.offset, end}}};
  }
  Laid laid;
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  laid.header.resize(kLengthBytes);
  std::memcpy(laid.header.data(), &length, kLengthBytes);
  laid.header += text;
  for (auto& [name, t] : tensors) t.offset += static_cast<int64_t>(laid.header.size());
  laid.bytes = static_cast<int64_t>(laid.header.size()) + end;
  laid.tensors = std::move(tensors);
  return laid;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, Laid laid, Open open)
    : tensors_(std::move(laid.tensors)),
      file_(open == kNew ? OutputFile(path, laid.bytes) : OutputFile::join(path, laid.bytes)) {
  if (open == kNew) file_.write_at(0, laid.header.data(), static_cast<int64_t>(laid.header.size()));
}

SafetensorsWriter SafetensorsWriter::join(const std::string& path, StoredTensors tensors) {
  return {path, std::move(tensors), kJoin};
}

const StoredTensor& SafetensorsWriter::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  TESSERA_CHECK(found != tensors_.end(), "no tensor ", name, " was announced");
  return found->second;
}

void SafetensorsWriter::write(const std::string& name, const Tensor& value) {
  const StoredTensor& t = at(name);
  TESSERA_CHECK(t.dtype == value.dtype() && t.shape == value.shape(), "tensor ", name, " is not as announced");
  file_.write_at(t.offset, value.raw(), value.bytes());
}

SafetensorsReader::SafetensorsReader(InputFile file) : file_(std::move(file)) {
  tensors_ = HeaderParser(file_).parse();
}

const StoredTensor* SafetensorsReader::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

Tensor SafetensorsReader::read(const std::string& name) const {
  const StoredTensor* t = find(name);
  TESSERA_CHECK(t, "no tensor ", name, " in ", file_.path());
  Tensor out = Tensor::empty(t->shape, t->dtype);
  file_.read_at(t->offset, out.raw(), out.bytes());
  return out;
}

void TensorFiles::add(SafetensorsReader file) {
  const SafetensorsReader& kept = files_.emplace_back(std::move(file));
  for (const auto& [name, tensor] : kept.tensors()) {
    const auto [place, is_new] = places_.emplace(name, Place{&kept, &tensor});
    if (!is_new) {
      fail(Code::kInvalidArgument, "tensor \"", name, "\" is in ", kept.file().path(), " and in ",
           place->second.file->file().path());
    }
  }
}

const TensorFiles::Place* TensorFiles::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

}  // namespace tessera::checkpoint
