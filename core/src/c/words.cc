// tsr_words(): the words of typed values.
#include <cmath>
#include <string_view>

#include "c/call.h"
#include "c/handles.h"
#include "tessera/sdk/values.h"

using namespace tessera;
using namespace tessera::c;

namespace {

template <class T, class Append>
std::string lines_of(const DLTensor& values, const Append& append) {
  const auto* data =
      reinterpret_cast<const T*>(static_cast<const char*>(values.data) + static_cast<size_t>(values.byte_offset));
  std::string out;
  for (int64_t i = 0; i < values.shape[0]; ++i) {
    append(out, data[i]);
    out += '\n';
  }
  return out;
}

std::string times_of(const DLTensor& values, std::string_view unit) {
  if (unit == "bool") return lines_of<int64_t>(values, [](auto& out, int64_t v) { sdk::append_word(out, v != 0); });
  if (unit == "day") return lines_of<int64_t>(values, [](auto& out, int64_t v) { sdk::append_date_word(out, v); });
  if (unit == "time") {
    constexpr int64_t kDay = int64_t{86400} * 1000000000;
    return lines_of<int64_t>(values, [](auto& out, int64_t v) {
      if (v < 0 || v >= kDay) fail(Code::kInvalidArgument, v, " ns is not a time of a day: it has 0 to ", kDay - 1);
      sdk::append_time_of_day_word(out, v);
    });
  }
  const int64_t per_second = unit == "s"    ? 1
                             : unit == "ms" ? 1000
                             : unit == "us" ? 1000000
                             : unit == "ns" ? 1000000000
                                            : 0;
  if (per_second == 0)
    fail(Code::kInvalidArgument, "unit is \"", unit, "\": bool, day, s, ms, us, ns and time are known");
  return lines_of<int64_t>(values, [&](auto& out, int64_t v) { sdk::append_time_word(out, v, per_second); });
}

std::string words_of(const DLTensor& values, const char* unit) {
  if (values.ndim != 1 || values.device.device_type != kDLCPU || values.dtype.lanes != 1 || values.strides != nullptr)
    fail(Code::kInvalidArgument, "values must be [n], compact and in host memory");
  if (values.shape[0] > 0) need(values.data, "values->data");
  const auto is = [&](int code, int bits) { return values.dtype.code == code && values.dtype.bits == bits; };
  if (unit != nullptr) {
    if (!is(kDLInt, 64)) fail(Code::kInvalidArgument, "values of a unit must be int64");
    return times_of(values, unit);
  }
  const auto number = [](std::string& out, auto v) {
    if (std::isfinite(v)) sdk::append_word(out, static_cast<double>(v));
  };
  if (is(kDLInt, 64)) return lines_of<int64_t>(values, [](auto& out, int64_t v) { sdk::append_word(out, v); });
  if (is(kDLUInt, 64)) return lines_of<uint64_t>(values, [](auto& out, uint64_t v) { sdk::append_word(out, v); });
  if (is(kDLFloat, 32)) return lines_of<float>(values, number);
  if (is(kDLFloat, 64)) return lines_of<double>(values, number);
  fail(Code::kInvalidArgument, "values have a type that is not supported: use int64, uint64, float32 or float64");
}

}  // namespace

tsr_code tsr_words(const DLTensor* values, const char* unit, tsr_text** words, tsr_error* err) {
  return made(words, "words", err, [&] {
    need(values, "values");
    return new tsr_text{words_of(*values, unit)};
  });
}
