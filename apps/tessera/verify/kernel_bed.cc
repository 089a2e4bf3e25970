#include "verify/kernel_bed.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tessera/sdk/half.h"
#include "tessera/sdk/row_format.h"

namespace tessera::cli::verify {
namespace {

constexpr size_t kGuard = 64;
constexpr unsigned char kGuardByte = 0xC3;

bool same(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits; }
DLDataType integers(bool wide) { return {kDLInt, static_cast<uint8_t>(wide ? 64 : 32), 1}; }

}  // namespace

const char* name_of(DLDataType type) {
  return same(type, kFloat32)    ? "float32"
         : same(type, kFloat16)  ? "float16"
         : same(type, kBFloat16) ? "bfloat16"
         : type.code == kDLUInt  ? type.bits == 8   ? "int8 codes"
                                   : type.bits == 4 ? "int4 codes"
                                                    : "int2 codes"
                                 : "another type";
}

Array::Array(DLDataType type, std::vector<int64_t> shape)
    : shape_(std::move(shape)),
      size_(std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>())),
      bytes_(static_cast<size_t>(size_ * type.bits / 8) + kGuard, 0) {
  std::memset(bytes_.data() + bytes_.size() - kGuard, kGuardByte, kGuard);
  tensor_ = {bytes_.data(), {kDLCPU, 0}, static_cast<int32_t>(shape_.size()), type, shape_.data(), nullptr, 0};
}

double Array::get(int64_t i) const {
  const void* data = bytes_.data();
  const DLDataType t = tensor_.dtype;
  if (t.code == kDLInt)
    return t.bits == 64 ? static_cast<double>(static_cast<const int64_t*>(data)[i])
                        : static_cast<const int32_t*>(data)[i];
  if (t.bits == 32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return t.code == kDLFloat ? sdk::half_to_float(bits) : sdk::bfloat16_to_float(bits);
}

void Array::set(int64_t i, double value) {
  void* data = bytes_.data();
  const DLDataType t = tensor_.dtype;
  if (t.code == kDLInt && t.bits == 64) {
    static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
  } else if (t.code == kDLInt) {
    static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
  } else if (t.bits == 32) {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  } else {
    const float f = static_cast<float>(value);
    static_cast<uint16_t*>(data)[i] = t.code == kDLFloat ? sdk::float_to_half(f) : sdk::float_to_bfloat16(f);
  }
}

void Array::check_end(const std::string& who) const {
  for (size_t i = bytes_.size() - kGuard; i < bytes_.size(); ++i)
    require(bytes_[i] == kGuardByte, who, " wrote past a tensor of ", size_, " elements");
}

std::string KernelShape::text() const {
  return str_cat(compute_kernel, ", rows of ", name_of(weights), ", outputs of ", name_of(output),
                 max_gradient > 0 ? str_cat(", max_gradient ", max_gradient) : "");
}

LookupBatch::LookupBatch(Random& random, const KernelShape& shape, const BatchShape& how) {
  constexpr int64_t kGap = 3;  // unused floats between bags
  std::vector<int64_t> all_ids, all_offsets{0}, all_rows;
  const size_t outputs = how.listed ? 2 : 1;
  std::vector<int64_t> widths(outputs, kGap), heights(outputs, how.bags);
  for (size_t f = 0; f < how.poolings.size(); ++f) {
    const size_t t = f % shape.tables.size();
    for (int64_t b = 0; b < how.bags; ++b) {
      const int64_t rows = shape.tables[t].rows, length = rows == 0 ? 0 : between(random, 0, how.longest);
      for (int64_t i = 0; i < length; ++i)
        all_ids.push_back(std::min(between(random, 0, rows - 1), between(random, 0, rows - 1)));
      all_offsets.push_back(static_cast<int64_t>(all_ids.size()));
      all_rows.push_back(how.listed ? 2 * b + 1 : b);
    }
    if (how.poolings[f] != TSR_POOLING_NONE) widths[f % outputs] += shape.tables[t].dim;
  }
  if (how.listed) heights.assign(outputs, 2 * how.bags);
  all_rows.push_back(0);
  sizes.resize(outputs);
  for (size_t k = 0; k < outputs; ++k) sizes[k] = widths[k] * heights[k];
  std::vector<int64_t> column(outputs, 0);
  for (size_t f = 0; f < how.poolings.size(); ++f) {
    const size_t t = f % shape.tables.size(), k = f % outputs;
    const int64_t dim = shape.tables[t].dim, first = static_cast<int64_t>(f) * how.bags;
    const bool sequence = how.poolings[f] == TSR_POOLING_NONE;
    const int64_t ids_here =
        all_offsets[static_cast<size_t>(first + how.bags)] - all_offsets[static_cast<size_t>(first)];
    features.push_back({static_cast<int32_t>(t), how.poolings[f], how.bags, first, sequence ? sizes[k] : column[k],
                        sequence ? dim + kGap : widths[k], static_cast<uint32_t>(k), how.listed && !sequence});
    if (sequence) {
      sizes[k] += ids_here * (dim + kGap);
    } else {
      column[k] += dim;
    }
  }
  const auto n = static_cast<int64_t>(all_ids.size());
  const auto fill = [](Array& to, const std::vector<int64_t>& from) {
    for (size_t i = 0; i < from.size(); ++i) to.set(static_cast<int64_t>(i), static_cast<double>(from[i]));
  };
  ids = std::make_unique<Array>(integers(how.wide), std::vector<int64_t>{n});
  offsets = std::make_unique<Array>(integers(how.wide), std::vector<int64_t>{static_cast<int64_t>(all_offsets.size())});
  rows = std::make_unique<Array>(integers(false), std::vector<int64_t>{static_cast<int64_t>(all_rows.size())});
  fill(*ids, all_ids);
  fill(*offsets, all_offsets);
  fill(*rows, all_rows);
  if (how.weighted) {
    weights = std::make_unique<Array>(kFloat32, std::vector<int64_t>{n});
    for (int64_t i = 0; i < n; ++i) weights->set(i, static_cast<double>(between(random, -8, 8)) / 4);
  }
  raw.struct_size = sizeof(tsr_lookup);
  raw.num_features = static_cast<uint32_t>(features.size());
  raw.feature_stride = sizeof(tsr_lookup_feature);
  raw.num_outputs = static_cast<uint32_t>(outputs);
  raw.features = features.data();
  raw.ids = ids->raw();
  raw.offsets = offsets->raw();
  raw.weights = weights == nullptr ? nullptr : weights->raw();
  raw.output_rows = how.listed ? rows->raw() : nullptr;
}

int64_t LookupBatch::ids_of(uint32_t table) const {
  int64_t n = 0;
  for (const tsr_lookup_feature& f : features) {
    if (static_cast<uint32_t>(f.table) == table) n += begin(f, f.bags) - begin(f, 0);
  }
  return n;
}

int64_t LookupBatch::place(const tsr_lookup_feature& f, int64_t bag, int64_t position) const {
  if (f.pooling == TSR_POOLING_NONE) return f.output_offset + (position - begin(f, 0)) * f.output_stride;
  const int64_t row = f.listed != 0 ? static_cast<int64_t>(rows->get(f.first_offset + bag)) : bag;
  return f.output_offset + row * f.output_stride;
}

Outputs::Outputs(const LookupBatch& batch, DLDataType type) {
  for (const int64_t size : batch.sizes) {
    arrays_.push_back(std::make_unique<Array>(type, std::vector<int64_t>{size}));
    raw_.push_back(*arrays_.back()->raw());
  }
}

void Outputs::fill(double value) {
  for (const auto& array : arrays_) {
    for (int64_t i = 0; i < array->size(); ++i) array->set(i, value);
  }
}

void Outputs::randomize(Random& random) {
  for (const auto& array : arrays_) {
    for (int64_t i = 0; i < array->size(); ++i) array->set(i, static_cast<double>(between(random, -64, 64)) / 32);
  }
}

namespace {

// The name of the format that rows of such a type have in tables that only infer; NULL: plain values.
const char* row_format_of(const KernelShape& shape) {
  if (shape.compute_kernel != TSR_COMPUTE_QUANT) return nullptr;
  const auto at = std::find_if(sdk::kRowFormats.begin(), sdk::kRowFormats.end(),
                               [&](const sdk::RowFormatInfo& i) { return sdk::same_dtype(i.dtype, shape.weights); });
  return at == sdk::kRowFormats.end() ? nullptr : at->layout;
}

}  // namespace

KernelBed::KernelBed(Parts parts, bool longer)
    : parts_(std::move(parts)),
      api_(*static_cast<const tsr_kernel*>(parts_.kernel.component->api)),
      updates_(&parts_.optimizer) {
  for (const TableShape& t : parts_.shape.tables) {
    const std::string& options = parts_.shape.table_options;
    tables_.push_back(
        {{sizeof(tsr_kernel_table), 0, "t", t.rows, t.dim, options.empty() ? nullptr : options.c_str(), 0, 0}, {}});
    if (!longer) continue;
    tables_.back().table.struct_size = sizeof(LongTable);
    std::memset(tables_.back().more, kGuardByte, sizeof(LongTable::more));
  }
  const KernelShape& s = parts_.shape;
  config_ = {static_cast<uint32_t>(longer ? sizeof(long_config_) : sizeof(tsr_kernel_config)),
             0,
             s.train ? TSR_MODE_TRAIN : TSR_MODE_INFER,
             0,
             parts_.shape.compute_kernel.c_str(),
             {kDLCPU, 0},
             s.weights,
             s.output,
             static_cast<uint32_t>(tables_.size()),
             sizeof(LongTable),
             &tables_[0].table,
             s.train ? &parts_.optimizer : nullptr,
             parts_.optimizer_options.c_str(),
             s.max_gradient,
             nullptr,
             row_format_of(s),
             0};
  if (longer) std::memset(long_config_.more, kGuardByte, sizeof(long_config_.more));
}

KernelBed::~KernelBed() { close(); }

void KernelBed::start_values(int64_t kind) {
  start_kind_ = kind;
  start_values_ = {sizeof(tsr_start_values), 0, this,
                   [](void* self, uint32_t table, int64_t count, const int64_t* rows, float* out, tsr_error*) {
                     const auto& bed = *static_cast<const KernelBed*>(self);
                     const int64_t dim = bed.shape().tables[table].dim;
                     for (int64_t i = 0; i < count * dim; ++i)
                       out[i] = start_value(bed.start_kind_, table, rows[i / dim], i % dim);
                     return static_cast<tsr_code>(TSR_OK);
                   },
                   [](void*, uint32_t, tsr_start_formula*, tsr_error* err) {
                     err->code = TSR_UNIMPLEMENTED;
                     std::strcpy(err->message, "verify has no formula: use fill");
                     return static_cast<tsr_code>(TSR_UNIMPLEMENTED);
                   }};
  config_.start_values = &start_values_;
}

void KernelBed::close() {
  if (instance_ == nullptr) return;
  parts_.subject.doing("close");
  api_.close(std::exchange(instance_, nullptr));
}

int64_t KernelBed::state_width(uint32_t k, size_t table) const {
  return updates_.state_width(k, shape().tables[table].dim);
}

std::string KernelBed::why_not() const {
  parts_.subject.doing("supports");
  Call call;
  return call.fails_well(api_.supports(parts_.kernel.self, &config_, call.out()), "supports");
}

tsr_code KernelBed::try_open(Call& call) {
  parts_.subject.doing("open");
  return api_.open(parts_.kernel.self, &config_, &instance_, call.out());
}

void KernelBed::open() {
  if (const std::string why = why_not(); !why.empty()) throw Skipped(why);
  Call call;
  const tsr_code code = try_open(call);
  call.succeeds(code, str_cat("open (", shape().text(), "), which supports() accepted,"));
  require(instance_ != nullptr, "open succeeded, but gave no instance");
}

tsr_context* KernelBed::forward(const LookupBatch& batch, Outputs& out, bool backward_follows) {
  parts_.subject.doing("forward");
  out.fill(kUntouched);
  tsr_context* context = nullptr;
  Call call;
  const tsr_code code =
      api_.forward(instance_, &batch.raw, out.raw(), nullptr, backward_follows ? &context : nullptr, call.out());
  if (const std::string why = call.fails_well(code, "forward"); code == TSR_UNIMPLEMENTED) throw Unimplemented(why);
  call.succeeds(code, "forward");
  for (size_t k = 0; k < out.size(); ++k) out[k].check_end("forward");
  return context;
}

tsr_backward KernelBed::arguments(const LookupBatch& batch, const Outputs& grad, Array* grad_weights, double scale,
                                  int64_t step) {
  update_ = {sizeof(tsr_update), 0, learning_rate_at(step), step};
  return {sizeof(tsr_backward),
          0,
          &batch.raw,
          grad.raw(),
          grad_weights == nullptr ? nullptr : grad_weights->raw(),
          scale,
          &update_};
}

void KernelBed::backward(const LookupBatch& batch, tsr_context* context, const Outputs& grad, Array* grad_weights,
                         double scale, int64_t step) {
  const tsr_backward args = arguments(batch, grad, grad_weights, scale, step);
  parts_.subject.doing("backward");
  Call call;
  call.succeeds(api_.backward(instance_, context, &args, nullptr, call.out()), "backward");
  release(context);
}

tsr_code KernelBed::backward_with(uint32_t update_flags, const LookupBatch& batch, tsr_context* context,
                                  const Outputs& grad, Call& call) {
  const tsr_backward args = arguments(batch, grad, nullptr, 1, 1);
  update_.flags = update_flags;
  parts_.subject.doing("backward");
  return api_.backward(instance_, context, &args, nullptr, call.out());
}

std::vector<tsr_row_gradient> KernelBed::backward_rows(const LookupBatch& batch, tsr_context* context,
                                                       const Outputs& grad, Array* grad_weights, double scale) {
  const tsr_backward args = arguments(batch, grad, grad_weights, scale, 1);
  std::vector<tsr_row_gradient> out(shape().tables.size());
  parts_.subject.doing("backward_rows");
  Call call;
  call.succeeds(api_.backward_rows(instance_, context, &args, out.data(), nullptr, call.out()), "backward_rows");
  return out;
}

void KernelBed::release(tsr_context* context) {
  parts_.subject.doing("release");
  if (context != nullptr) api_.release(instance_, context);
}

// Memory for rows of a table, for one call.
struct KernelBed::Room {
  Room(const KernelBed& bed, size_t table, int64_t count)
      : ids({kDLInt, 64, 1}, {count}), weights(kFloat32, {count, bed.shape().tables[table].dim}) {
    for (uint32_t k = 0; k < bed.num_states(); ++k) {
      widths.push_back(bed.state_width(k, table));
      const bool by_element = bed.updates().state(k).kind == TSR_STATE_PER_ELEMENT;
      states.push_back(
          std::make_unique<Array>(kFloat32, by_element ? std::vector{count, widths.back()} : std::vector{count}));
      raw_states.push_back(states.back()->raw());
    }
    raw = {sizeof(tsr_rows), 0, bed.num_states(), 0, 0, ids.raw(), weights.raw(), raw_states.data(), nullptr};
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  // Appends the rows in use, after a call of this name.
  void take(const char* call, size_t dim, Rows& out) {
    ids.check_end(call);
    weights.check_end(call);
    const auto n = static_cast<size_t>(raw.count);
    out.ids.insert(out.ids.end(), ids.data<int64_t>(), ids.data<int64_t>() + n);
    out.weights.insert(out.weights.end(), weights.data<float>(), weights.data<float>() + n * dim);
    out.states.resize(states.size());
    for (size_t k = 0; k < states.size(); ++k) {
      states[k]->check_end(call);
      const float* from = states[k]->data<float>();
      out.states[k].insert(out.states[k].end(), from, from + n * static_cast<size_t>(widths[k]));
    }
  }
  Array ids, weights;
  std::vector<std::unique_ptr<Array>> states;
  std::vector<const DLTensor*> raw_states;
  std::vector<int64_t> widths;
  tsr_rows raw{};
};

KernelBed::Rows KernelBed::export_rows(size_t table, int64_t at_once) {
  const auto dim = static_cast<size_t>(shape().tables[table].dim);
  Rows all;
  all.states.resize(num_states());
  parts_.subject.doing("export_rows");
  for (uint64_t cursor = 0;;) {
    Room room(*this, table, at_once);
    Call call;
    call.succeeds(api_.export_rows(instance_, static_cast<uint32_t>(table), &cursor, &room.raw, call.out()),
                  "export_rows");
    const int64_t count = room.raw.count;
    require(count >= 0 && count <= at_once, "export_rows gave ", count, " rows into room for ", at_once);
    room.take("export_rows", dim, all);
    if (count == 0) return all;
    require(all.ids.size() <= static_cast<size_t>(shape().tables[table].rows),
            "export_rows gives more rows than the table has");
  }
}

KernelBed::Rows KernelBed::read_rows(size_t table, const std::vector<int64_t>& ids) {
  Rows out;
  Room room(*this, table, static_cast<int64_t>(ids.size()));
  std::copy(ids.begin(), ids.end(), room.ids.data<int64_t>());
  room.raw.count = static_cast<int64_t>(ids.size());
  parts_.subject.doing("read_rows");
  Call call;
  call.succeeds(api_.read_rows(instance_, static_cast<uint32_t>(table), &room.raw, call.out()), "read_rows");
  require(room.raw.count == static_cast<int64_t>(ids.size()), "read_rows changes the number of rows to ",
          room.raw.count);
  room.take("read_rows", static_cast<size_t>(shape().tables[table].dim), out);
  return out;
}

void KernelBed::import_rows(size_t table, Rows& from, uint32_t flags) {
  const auto n = static_cast<int64_t>(from.ids.size());
  const int64_t dim = shape().tables[table].dim;
  Array ids({kDLInt, 64, 1}, {n}), weights(kFloat32, {n, dim});
  std::copy(from.ids.begin(), from.ids.end(), ids.data<int64_t>());
  std::copy(from.weights.begin(), from.weights.end(), weights.data<float>());
  std::vector<std::unique_ptr<Array>> states;
  std::vector<const DLTensor*> raw_states;
  for (uint32_t k = 0; k < from.states.size(); ++k) {
    const int64_t width = state_width(k, table);
    const bool by_row = updates_.state(k).kind != TSR_STATE_PER_ELEMENT;
    states.push_back(std::make_unique<Array>(kFloat32, by_row ? std::vector{n} : std::vector{n, width}));
    std::copy(from.states[k].begin(), from.states[k].end(), states[k]->data<float>());
    raw_states.push_back(states[k]->raw());
  }
  tsr_rows rows{sizeof(tsr_rows),  flags,  static_cast<uint32_t>(from.states.size()), 0, n, ids.raw(), weights.raw(),
                raw_states.data(), nullptr};
  parts_.subject.doing("import_rows");
  Call call;
  call.succeeds(api_.import_rows(instance_, static_cast<uint32_t>(table), &rows, call.out()), "import_rows");
}

}  // namespace tessera::cli::verify
