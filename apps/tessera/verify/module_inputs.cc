#include "verify/module_inputs.h"

#include "verify/check.h"
#include "verify/kernel_bed.h"

namespace tessera::cli::verify {
namespace {

Values dense(const std::vector<int64_t>& widths) {
  Values out;
  for (const int64_t width : widths) out.push_back(value_of(width));
  return out;
}
// Gives sequences offsets: all the same ones, or each its own.
Values with_rows(Values values, bool same) {
  int32_t first = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!is_sequence(values[i])) continue;
    if (first < 0 || !same) first = static_cast<int32_t>(i);
    values[i].rows_like = first;
  }
  return values;
}

// The inputs if the layer takes them, with sequences that share rows or do not; unset if it refuses them.
std::optional<Values> accepted(const tsr_module& api, void* self, const Values& values) {
  for (const bool same : {true, false}) {
    const Values inputs = with_rows(values, same);
    const std::optional<Values> outputs = outputs_of(api, self, inputs);
    if (outputs && !outputs->empty()) return inputs;
  }
  return std::nullopt;
}

}  // namespace

tsr_value value_of(int64_t width, DLDataType type, uint32_t flags) {
  return {sizeof(tsr_value), flags, type, 0, width};
}

std::optional<Values> outputs_of(const tsr_module& api, void* self, const Values& inputs) {
  Values out;
  for (uint32_t i = 0; i < 1000; ++i) {
    auto value = sdk::sized<tsr_value>();
    Call call;
    const tsr_code code =
        api.output(self, i, static_cast<uint32_t>(inputs.size()), sizeof(tsr_value), inputs.data(), &value, call.out());
    call.fails_well(code, "output");
    if (code == TSR_OUT_OF_RANGE) return out;
    if (code != TSR_OK) return std::nullopt;
    require(value.width > 0, "output ", i, " has ", value.width, " values");
    require((value.flags & TSR_MUST_UNDERSTAND & ~uint32_t{TSR_VALUE_JAGGED}) == 0 && value.dtype.code == kDLFloat &&
                value.dtype.bits == 32,
            "output ", i, " is not float32 rows, dense or a sequence");
    if (is_sequence(value) && value.rows_like != TSR_ROWS_OWN) {
      const auto like = static_cast<size_t>(value.rows_like);
      require(value.rows_like >= 0 && like < inputs.size() && is_sequence(inputs[like]), "output ", i,
              " has the rows of input ", value.rows_like, ", which is not a sequence");
    }
    const bool bounded = api.struct_size >= TSR_END_OF(tsr_module, max_rows) && api.max_rows != nullptr;
    require(!has_own_rows(value) || bounded, "output ", i, " has offsets of its own, but there is no max_rows()");
    out.push_back(value);
  }
  broken("its list of outputs does not end");
}

Values find_inputs(const tsr_module& api, void* self) {
  std::vector<Values> tries;
  for (const int64_t w : {12, 8, 16, 4}) tries.push_back(dense({w}));
  for (int64_t w = 1; w <= 512; ++w) tries.push_back(dense({w}));
  for (const auto& pair : {std::vector<int64_t>{4, 12}, {8, 8}, {4, 4}}) tries.push_back(dense(pair));
  for (int64_t a = 1; a <= 32; ++a) {
    for (int64_t b = 1; b <= 64; ++b) tries.push_back(dense({a, b}));
  }
  for (int64_t a = 1; a <= 8; ++a) {
    for (int64_t i = 0; i < 64; ++i) tries.push_back(dense({a, 1 + i / 8, 1 + i % 8}));
  }
  constexpr DLDataType kInt32{kDLInt, 32, 1}, kInt64{kDLInt, 64, 1};
  for (int64_t w = 1; w <= 64; ++w) {
    for (const uint32_t flags : {0u, uint32_t{TSR_VALUE_JAGGED}}) {
      for (const DLDataType type : {kFloat32, kInt64, kInt32}) tries.push_back({value_of(w, type, flags)});
    }
  }
  constexpr uint32_t kSequence = TSR_VALUE_JAGGED;
  for (int64_t w = 1; w <= 16; ++w) {
    const tsr_value rows = value_of(w, kFloat32, kSequence);
    tries.push_back({value_of(w), rows});  // a target, and a sequence
    tries.push_back({rows, rows});
    tries.push_back({rows, value_of(1, kInt64, kSequence)});  // with times or actions
    tries.push_back({rows, value_of(1, kInt64)});             // with a number for each sample
    const tsr_value times = value_of(1, kInt64, kSequence), counts = value_of(1, kInt64);
    tries.push_back({rows, rows, rows});  // queries, keys and values; with times, and numbers for each sample
    tries.push_back({rows, rows, rows, counts});
    tries.push_back({rows, rows, rows, times});
    tries.push_back({rows, rows, rows, times, counts});
    tries.push_back({rows, rows, rows, times, counts, counts});
    tries.push_back({times, counts});
    tries.push_back({times, times});
    tries.push_back({rows, rows, times, times});  // states and candidates, with ids
    tries.push_back({rows, rows, rows, times, times});
    tries.push_back({value_of(w), value_of(1), value_of(1, kInt64)});  // a prediction, a label and groups
  }
  for (const Values& values : tries) {
    const std::optional<Values> inputs = accepted(api, self, values);
    if (inputs) return *inputs;
  }
  throw Skipped(
      "verify found no inputs that it takes: one of up to 512, two of up to 32 and 64, three of up to 8 wide, one "
      "of integers or of a sequence of up to 64, or two or more with sequences of one width of up to 16");
}

}  // namespace tessera::cli::verify
