#include "serve/infer_json.h"

#include <algorithm>
#include <limits>

#include "config/json.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

constexpr size_t kMaxDims = 8;
// outputs allowed for any model, because one output may be asked for by several names
constexpr size_t kFewOutputs = 16;

// The place in the document that the parser is in.
enum class Where {
  kStart,
  kRequest,
  kParameters,
  kInputs,
  kInput,
  kInputParameters,
  kShape,
  kData,
  kOutputs,
  kOutput,
  kOutputParameters,
  kPassedOver,
};

// The containers that the protocol has, and where they occur.
struct Container {
  Where in;
  std::string_view key;  // key of an object's member; empty in arrays
  bool object;           // otherwise an array
  Where to;
};
constexpr Container kContainers[] = {
    {Where::kStart, "", true, Where::kRequest},
    {Where::kRequest, "parameters", true, Where::kParameters},
    {Where::kRequest, "inputs", false, Where::kInputs},
    {Where::kRequest, "outputs", false, Where::kOutputs},
    {Where::kInputs, "", true, Where::kInput},
    {Where::kInput, "shape", false, Where::kShape},
    {Where::kInput, "data", false, Where::kData},
    {Where::kInput, "parameters", true, Where::kInputParameters},
    {Where::kData, "", false, Where::kData},
    {Where::kOutputs, "", true, Where::kOutput},
    {Where::kOutput, "parameters", true, Where::kOutputParameters},
};

class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(std::string_view text, const config::JsonSource& source, const InferJsonLimits& limits)
      : text_(text), source_(source), limits_(limits) {}
  InferJson take() { return std::move(out_); }

  bool start_object(size_t) override { return enter(true); }
  bool start_array(size_t) override { return enter(false); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    if (top() == Where::kRequest && out_.unknown.empty() && !known_member()) out_.unknown = shown(key_);
    return true;
  }

  bool null() override {
    if (top() == Where::kData && tensor().text) {
      no_text();
      return true;
    }
    if (top() == Where::kData) {
      if (tensor().nulls == out_.numbers.size() - tensor().first) ++tensor().nulls;
      return real(std::numeric_limits<double>::quiet_NaN());
    }
    return top() == Where::kPassedOver || !known_member() || wrong("null");
  }
  bool binary(binary_t&) override { return wrong("bytes"); }
  bool boolean(bool value) override {
    if (top() == Where::kParameters && key_ == "binary_data_output") {
      out_.binary_output = value;
    } else if (top() == Where::kOutputParameters && key_ == "binary_data") {
      out_.outputs.back().binary = value;
    } else if (top() == Where::kData && !tensor().text && (tensor().truth || out_.numbers.size() == tensor().first)) {
      tensor().truth = true;
      out_.numbers.push_back(value ? 1 : 0);
    } else if (known_member()) {
      return wrong("true or false");
    }
    return true;
  }
  bool string(string_t& value) override {
    if (top() == Where::kRequest && key_ == "id") {
      out_.id = std::move(value);
    } else if (top() == Where::kInput && key_ == "name") {
      tensor().name = std::move(value);
    } else if (top() == Where::kInput && key_ == "datatype") {
      tensor().datatype = std::move(value);
    } else if (top() == Where::kOutput && key_ == "name") {
      out_.outputs.back().name = std::move(value);
    } else if (top() == Where::kData && (tensor().text || out_.numbers.size() == tensor().first + tensor().nulls)) {
      if (!tensor().text) begin_texts();
      out_.texts += value;
      out_.ends.push_back(static_cast<int64_t>(out_.texts.size()));
    } else if (known_member()) {
      return wrong("a string");
    }
    return true;
  }
  bool number_integer(number_integer_t value) override { return integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return integer(static_cast<int64_t>(value));
    if (top() != Where::kData || tensor().text || tensor().truth) return real(static_cast<double>(value));
    if (tensor().real || tensor().negative) {
      tensor().rounded = true;
      return real(static_cast<double>(value));
    }
    tensor().large = true;
    out_.numbers.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(number_float_t value, const string_t&) override { return real(value); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    constexpr int kTooLarge = 406;  // exponent of a number that is too large
    if (e.id == kTooLarge) fail(Code::kInvalidArgument, "the request holds a number that is too large");
    config::no_json(text_, source_, position);
  }

 private:
  Where top() const { return stack_.empty() ? Where::kStart : stack_.back(); }
  JsonTensor& tensor() { return out_.inputs.back(); }

  // True if a value of the right type is known here.
  bool known_member() const {
    switch (top()) {
      case Where::kStart:
      case Where::kInputs:
      case Where::kShape:
      case Where::kData:
      case Where::kOutputs:
        return true;
      case Where::kRequest:
        return key_ == "id" || key_ == "inputs" || key_ == "outputs" || key_ == "parameters";
      case Where::kParameters:
        return key_ == "binary_data_output" || key_ == "timeout";
      case Where::kInput:
        return key_ == "name" || key_ == "datatype" || key_ == "shape" || key_ == "data" || key_ == "parameters";
      case Where::kInputParameters:
        return key_ == "binary_data_size";
      case Where::kOutput:
        return key_ == "name" || key_ == "parameters";
      case Where::kOutputParameters:
        return key_ == "binary_data";
      case Where::kPassedOver:
        return false;
    }
    return false;
  }

  // The member or element being read, for an error message: "inputs[3].shape".
  std::string place() const {
    switch (top()) {
      case Where::kStart:
        return "the request";
      case Where::kRequest:
        return key_;
      case Where::kParameters:
        return "parameters." + key_;
      case Where::kInputs:
        return str_cat("inputs[", out_.inputs.size(), "]");
      case Where::kInput:
        return str_cat("inputs[", out_.inputs.size() - 1, "].", key_);
      case Where::kInputParameters:
        return str_cat("inputs[", out_.inputs.size() - 1, "].parameters.", key_);
      case Where::kShape:
        return str_cat("inputs[", out_.inputs.size() - 1, "].shape");
      case Where::kData:
        return str_cat("inputs[", out_.inputs.size() - 1, "].data");
      case Where::kOutputs:
        return str_cat("outputs[", out_.outputs.size(), "]");
      case Where::kOutput:
        return str_cat("outputs[", out_.outputs.size() - 1, "].", key_);
      case Where::kOutputParameters:
        return str_cat("outputs[", out_.outputs.size() - 1, "].parameters.", key_);
      case Where::kPassedOver:
        break;
    }
    return key_;
  }
  [[noreturn]] bool wrong(const char* what) const {
    fail(Code::kInvalidArgument, shown(place()), " cannot be ", what, ": see the Open Inference Protocol v2");
  }

  bool enter(bool object) {
    Where to = Where::kPassedOver;
    for (const Container& container : kContainers) {
      if (container.in == top() && container.object == object && (container.key == key_ || container.key.empty()))
        to = container.to;
    }
    if (to == Where::kPassedOver && known_member()) wrong(object ? "an object" : "an array");
    if (to == Where::kInput) begin_input();
    if (to == Where::kOutput) begin_output();
    if (to == Where::kData && top() == Where::kInput) begin_data();
    stack_.push_back(to);
    return true;
  }
  bool leave() {
    const Where left = stack_.back();
    stack_.pop_back();
    if (left == Where::kData && top() == Where::kInput)
      tensor().count = (tensor().text ? out_.ends.size() - 1 : out_.numbers.size()) - tensor().first;
    return true;
  }
  void begin_input() {
    check_numbers(out_.inputs.size() + 1, 0, limits_);
    out_.inputs.emplace_back();
  }
  void begin_output() {
    check_numbers(0, out_.outputs.size() + 1, limits_);
    out_.outputs.emplace_back();
  }
  void begin_data() {
    if (tensor().has_data) fail(Code::kInvalidArgument, shown(place()), " is there twice");
    tensor().has_data = true;
    tensor().first = out_.numbers.size();
  }

  void refuse_mixed() const {
    if (out_.inputs.back().text) wrong("a number among texts");
    if (out_.inputs.back().truth) wrong("a number among true and false");
  }
  int64_t real_bits(int64_t value) {
    const auto number = static_cast<double>(value);
    constexpr double kBeyond = 0x1p63;  // the first number beyond int64
    tensor().rounded = tensor().rounded || number >= kBeyond || static_cast<int64_t>(number) != value;
    return std::bit_cast<int64_t>(number);
  }
  // Turns the integers read so far into doubles.
  void become_real() {
    if (tensor().real) return;
    for (size_t i = tensor().first; i < out_.numbers.size(); ++i) {
      const int64_t bits = out_.numbers[i];
      const bool beyond = tensor().large && bits < 0;
      tensor().rounded = tensor().rounded || beyond;
      out_.numbers[i] =
          beyond ? std::bit_cast<int64_t>(static_cast<double>(static_cast<uint64_t>(bits))) : real_bits(bits);
    }
    tensor().real = true;
    tensor().large = false;
  }
  // Turns the nulls read so far into missing texts.
  void begin_texts() {
    const size_t nulls = tensor().nulls;
    out_.numbers.resize(tensor().first);
    tensor().first = out_.ends.size() - 1;
    tensor().text = true;
    tensor().real = false;
    for (size_t i = 0; i < nulls; ++i) no_text();
  }
  void no_text() {
    out_.no_texts.push_back(out_.ends.size() - 1);
    out_.ends.push_back(static_cast<int64_t>(out_.texts.size()));
  }

  bool integer(int64_t value) {
    if (top() == Where::kData) {
      refuse_mixed();
      if (value < 0 && tensor().large) become_real();
      tensor().negative = tensor().negative || value < 0;
      out_.numbers.push_back(tensor().real ? real_bits(value) : value);
    } else if (top() == Where::kShape) {
      if (tensor().shape.size() == kMaxDims) {
        fail(Code::kInvalidArgument, shown(place()), " has more than ", kMaxDims, " dimensions");
      }
      tensor().shape.push_back(value);
    } else if (top() == Where::kInputParameters && key_ == "binary_data_size") {
      tensor().binary_size = value;
    } else if (top() == Where::kParameters && key_ == "timeout") {
      out_.timeout_us = value;
    } else if (known_member()) {
      return wrong("a number");
    }
    return true;
  }
  bool real(double value) {
    if (top() != Where::kData) return !known_member() || wrong("a number with a fraction");
    refuse_mixed();
    become_real();
    out_.numbers.push_back(std::bit_cast<int64_t>(value));
    return true;
  }

  const std::string_view text_;
  const config::JsonSource& source_;
  const InferJsonLimits limits_;
  InferJson out_;
  std::vector<Where> stack_;
  std::string key_;
};

}  // namespace

std::string shown(std::string_view text) {
  constexpr size_t kMost = 200;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

void check_numbers(size_t inputs, size_t outputs, const InferJsonLimits& limits) {
  if (inputs > limits.inputs)
    fail(Code::kInvalidArgument, "the request has more inputs than the ", limits.inputs, " that the model takes");
  if (const size_t most = std::max(kFewOutputs, limits.outputs); outputs > most)
    fail(Code::kInvalidArgument, "the request asks for more than ", most, " outputs");
}

InferJson read_infer_json(std::string_view text, const InferJsonLimits& limits) {
  const config::JsonSource source{"the request"};
  config::check_json(text, source);
  Reader reader(text, source, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

TensorRequest InferJson::view(std::string_view bytes) {
  text_views.reserve(ends.size() - 1);
  for (size_t i = 0; i + 1 < ends.size(); ++i) text_views.push_back({texts.data() + ends[i], ends[i + 1] - ends[i]});
  for (const size_t none : no_texts) text_views[none] = {nullptr, 0};
  TensorRequest out{id, timeout_us};
  out.inputs.reserve(inputs.size());
  size_t at = 0;
  for (const JsonTensor& t : inputs) {
    RequestTensor& seen = out.inputs.emplace_back(RequestTensor{t.name, t.datatype, t.shape});
    if (t.binary_size) {
      if (t.has_data)
        fail(Code::kInvalidArgument, "tensor ", shown(t.name), " has both \"data\" and \"binary_data_size\"");
      if (*t.binary_size < 0 || static_cast<uint64_t>(*t.binary_size) > bytes.size() - at) {
        fail(Code::kInvalidArgument, "tensor ", shown(t.name), " has binary_data_size ", *t.binary_size, ", but ",
             bytes.size() - at, " bytes of the request are left");
      }
      seen.data = RequestTensor::Data::kBytes;
      seen.bytes = bytes.substr(at, static_cast<size_t>(*t.binary_size));
      at += seen.bytes.size();
      continue;
    }
    if (!t.has_data) continue;
    seen.where = " in \"data\"";
    seen.data = t.text ? RequestTensor::Data::kTexts : RequestTensor::Data::kNumbers;
    if (t.text)
      seen.texts = std::span(text_views).subspan(t.first, t.count);
    else
      seen.numbers = std::span(numbers).subspan(t.first, t.count);
    seen.real = t.real, seen.truth = t.truth, seen.large = t.large, seen.rounded = t.rounded, seen.taken = t.taken;
  }
  if (at != bytes.size()) {
    fail(Code::kInvalidArgument, bytes.size() - at,
         " bytes follow the last binary tensor: binary_data_size and the header ",
         "Inference-Header-Content-Length must add up to the request");
  }
  for (const Output& output : outputs) out.outputs.push_back({output.name, output.binary});
  out.binary_output = binary_output.value_or(false);
  out.unknown = unknown;
  return out;
}

}  // namespace tessera::serve
