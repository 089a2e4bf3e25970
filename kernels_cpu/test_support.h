// Shared by the kernels' tests: a minimal host, components loaded as the core loads them, tensors, and random batches.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/half.h"
#include "tessera/sdk/kernel.h"

namespace tessera_cpu::test {

// The number of calls of operator new by the program and the plugins, and their bytes (test_news.cc).
int64_t news_so_far();
int64_t bytes_asked_so_far();

struct Error : tsr_error {
  Error() : tsr_error TSR_ERROR_INIT {}
};

// A minimal host. Its memory is never zero, and it starts threads for each call.
class TestHost {
 public:
  TestHost() { raw_ = {sizeof(tsr_host), TSR_ABI_MINOR, this, log, alloc, free, parallel_for, num_threads, nullptr}; }
  const tsr_host* raw() const { return &raw_; }
  uint32_t threads = 1;
  std::atomic<int64_t> allocations{0};
  std::atomic<int64_t> live_bytes{0};
  std::atomic<int64_t> most_bytes{0};  // peak of live bytes
  // These allocate memory of devices other than the CPU.
  std::function<void*(uint64_t bytes, tsr_stream stream)> device_alloc;
  std::function<void(void* memory, tsr_stream stream)> device_free;
  // These allocate zeroed host memory of more than a gigabyte.
  std::function<void*(uint64_t bytes)> large_alloc;
  std::function<void(void* memory, uint64_t bytes)> large_free;

 private:
  bool is_large(uint64_t bytes) const { return large_alloc && bytes >> 30 != 0; }
  static TestHost& of(const tsr_host* host) { return *static_cast<TestHost*>(host->self); }
  static void log(const tsr_host*, int32_t, const char*) {}
  static void* alloc(const tsr_host* host, DLDevice device, uint64_t bytes, tsr_stream stream, tsr_error*) {
    ++of(host).allocations;
    const int64_t live = of(host).live_bytes += static_cast<int64_t>(bytes);
    for (int64_t most = of(host).most_bytes; live > most && !of(host).most_bytes.compare_exchange_weak(most, live);) {
    }
    if (device.device_type != kDLCPU) return of(host).device_alloc(bytes, stream);
    if (of(host).is_large(bytes)) return of(host).large_alloc(bytes);
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (bytes > 0) std::memset(memory, 0x5A, bytes);
    return memory;
  }
  static void free(const tsr_host* host, DLDevice device, void* memory, uint64_t bytes, tsr_stream stream) {
    of(host).live_bytes -= static_cast<int64_t>(bytes);
    if (device.device_type != kDLCPU) return of(host).device_free(memory, stream);
    if (of(host).is_large(bytes)) return of(host).large_free(memory, bytes);
    std::free(memory);
  }
  static void parallel_for(const tsr_host* host, uint64_t n, void (*body)(void*, uint64_t), void* ctx) {
    std::atomic<uint64_t> next{0};
    const auto work = [&] {
      for (uint64_t i = next++; i < n; i = next++) body(ctx, i);
    };
    if (of(host).threads == 1) return work();
    std::vector<std::thread> others;
    for (uint32_t t = 1; t < of(host).threads; ++t) others.emplace_back(work);
    work();
    for (std::thread& t : others) t.join();
  }
  static uint32_t num_threads(const tsr_host* host) { return of(host).threads; }
  tsr_host raw_;
};

inline const tsr_component* component(const char* path, const std::string& id, const tsr_host* host) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto entry = reinterpret_cast<tsr_entry>(dlsym(library, TSR_ENTRY_SYMBOL));
  Error error;
  const tsr_plugin* plugin = entry(host, &error);
  for (uint32_t i = 0; i < plugin->num_components; ++i) {
    if (plugin->components[i]->id == id) return plugin->components[i];
  }
  throw std::runtime_error("no component " + id);
}

// A created component, with a forced instruction set if one is named.
class Part {
 public:
  Part(const char* path, const std::string& id, TestHost& host, const std::string& options, const std::string& isa) {
    raw.component = component(path, id, host.raw());
    isa.empty() ? unsetenv("TESSERA_ISA") : setenv("TESSERA_ISA", isa.c_str(), 1);
    Error error;
    code = raw.component->create(raw.component, host.raw(), options.c_str(), nullptr, &raw.self, &error);
    message = error.message;
    unsetenv("TESSERA_ISA");
  }
  ~Part() {
    if (code == TSR_OK) raw.component->destroy(raw.self);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  tsr_instance raw{};
  tsr_code code;
  std::string message;
};

inline constexpr DLDataType kF32{kDLFloat, 32, 1};
inline constexpr DLDataType kF16{kDLFloat, 16, 1};
inline constexpr DLDataType kBF16{kDLBfloat, 16, 1};
inline constexpr DLDataType kI32{kDLInt, 32, 1};
inline constexpr DLDataType kI64{kDLInt, 64, 1};

// A tensor of one or two dimensions that owns its memory.
struct Array {
  Array(DLDataType type, int64_t n) : shape{n, 0}, bytes(static_cast<size_t>(n * type.bits / 8)) {
    tensor = {bytes.data(), {kDLCPU, 0}, 1, type, shape, nullptr, 0};
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  void set(int64_t i, double v) {
    if (tensor.dtype.code == kDLInt) {
      tensor.dtype.bits == 64 ? data<int64_t>()[i] = static_cast<int64_t>(v)
                              : data<int32_t>()[i] = static_cast<int32_t>(v);
    } else if (tensor.dtype.bits == 32) {
      data<float>()[i] = static_cast<float>(v);
    } else {
      data<uint16_t>()[i] = tensor.dtype.code == kDLFloat ? tessera_cpu::float_to_half(static_cast<float>(v))
                                                          : tessera_cpu::float_to_bfloat16(static_cast<float>(v));
    }
  }
  float get(int64_t i) {
    if (tensor.dtype.bits == 32) return data<float>()[i];
    return tensor.dtype.code == kDLFloat ? tessera_cpu::half_to_float(data<uint16_t>()[i])
                                         : tessera_cpu::bfloat16_to_float(data<uint16_t>()[i]);
  }
  int64_t shape[2];
  std::vector<char> bytes;
  DLTensor tensor;
};

struct TableShape {
  int64_t rows;
  int64_t dim;
};
struct FeatureShape {
  int32_t table;
  int32_t pooling;
};

struct Options {
  std::vector<TableShape> tables;
  std::string optimizer = "exact_sgd";
  std::string optimizer_options = "{}";
  std::string compute_kernel = "fused";
  DLDataType weight_dtype = kF32;
  DLDataType output_dtype = kF32;
  double max_gradient = 0;
  bool train = true;
  const char* row_format = nullptr;

  // Sets the optimizer, with weight decay.
  void take_optimizer(const std::string& name, const char* mode = "l2") {
    optimizer = name;
    optimizer_options = R"({"eps": 0.01, "weight_decay": 0.01)";
    if (name.starts_with("exact_")) optimizer_options += std::string(R"(, "weight_decay_mode": ")") + mode + '"';
    optimizer_options += "}";
  }
};

struct Batch {
  std::vector<FeatureShape> features;
  std::vector<tsr_lookup_feature> raw_features;
  std::unique_ptr<Array> ids, offsets, weights, grad_output;
  int64_t output_size = 0;
  tsr_lookup lookup{};
};

using Random = std::mt19937_64;

// Makes bags of 0 to `longest` ids, mostly of low rows, sometimes repeated. Features interleave in the output.
inline std::unique_ptr<Batch> random_batch(Random& random, const Options& o, std::vector<FeatureShape> features,
                                           int64_t bags, int64_t longest, DLDataType index, bool weighted) {
  auto batch = std::make_unique<Batch>();
  std::vector<int64_t> ids, offsets{0};
  for (const FeatureShape& f : features) {
    const int64_t rows = o.tables[f.table].rows;
    for (int64_t b = 0; b < bags; ++b) {
      const int64_t length = rows == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(longest + 1));
      for (int64_t i = 0; i < length; ++i) {
        const double u = static_cast<double>(random() % 100000) / 100000;
        ids.push_back(std::min(rows - 1, static_cast<int64_t>(u * u * static_cast<double>(rows))));
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
  }
  int64_t width = 0;
  for (const FeatureShape& f : features) width += f.pooling == TSR_POOLING_NONE ? 0 : o.tables[f.table].dim;
  int64_t column = 0;
  batch->output_size = width * bags;
  for (size_t f = 0; f < features.size(); ++f) {
    const int64_t dim = o.tables[features[f].table].dim;
    const int64_t first = static_cast<int64_t>(f) * bags;
    tsr_lookup_feature raw{features[f].table, features[f].pooling, bags, first, column, width};
    if (features[f].pooling == TSR_POOLING_NONE) {
      raw.output_offset = batch->output_size;
      raw.output_stride = dim;
      batch->output_size += (offsets[first + bags] - offsets[first]) * dim;
    } else {
      column += dim;
    }
    batch->raw_features.push_back(raw);
  }
  const int64_t n = static_cast<int64_t>(ids.size());
  batch->features = std::move(features);
  batch->ids = std::make_unique<Array>(index, n);
  batch->offsets = std::make_unique<Array>(index, static_cast<int64_t>(offsets.size()));
  batch->weights = std::make_unique<Array>(kF32, n);
  batch->grad_output = std::make_unique<Array>(o.output_dtype, batch->output_size);
  std::normal_distribution<float> normal(0, 1);
  for (int64_t i = 0; i < n; ++i) batch->ids->set(i, static_cast<double>(ids[i]));
  for (size_t i = 0; i < offsets.size(); ++i)
    batch->offsets->set(static_cast<int64_t>(i), static_cast<double>(offsets[i]));
  for (int64_t i = 0; i < n; ++i) batch->weights->set(i, normal(random));
  for (int64_t i = 0; i < batch->output_size; ++i) batch->grad_output->set(i, normal(random));
  batch->lookup.struct_size = sizeof(tsr_lookup);
  batch->lookup.num_features = static_cast<uint32_t>(batch->raw_features.size());
  batch->lookup.feature_stride = sizeof(tsr_lookup_feature);
  batch->lookup.features = batch->raw_features.data();
  batch->lookup.ids = &batch->ids->tensor;
  batch->lookup.offsets = &batch->offsets->tensor;
  batch->lookup.weights = weighted ? &batch->weights->tensor : nullptr;
  return batch;
}

// The rows of a table that have a gradient, and their gradients.
struct RowGradients {
  std::vector<int64_t> rows;
  std::vector<float> values;
};

// One kernel instance with its optimizer.
class Model {
 public:
  Model(TestHost& host, const char* kernel_path, const std::string& id, const Options& o, const std::string& isa = "")
      : options(o), kernel_(kernel_path, id, host, "{}", isa) {
    if (!o.optimizer.empty()) {
      optimizer_ = std::make_unique<Part>(TESSERA_OPTIMIZERS, o.optimizer, host, o.optimizer_options, isa);
      if (optimizer_->code != TSR_OK) throw std::runtime_error(optimizer_->message);
    }
    if (kernel_.code != TSR_OK) throw std::runtime_error(kernel_.message);
    api = static_cast<const tsr_kernel*>(kernel_.raw.component->api);
    for (const TableShape& t : o.tables) {
      tables_.push_back({sizeof(tsr_kernel_table), 0, "t", t.rows, t.dim, nullptr, 0, 0});
    }
    config = {sizeof(tsr_kernel_config),
              0,
              o.train ? TSR_MODE_TRAIN : TSR_MODE_INFER,
              0,
              options.compute_kernel.c_str(),
              {kDLCPU, 0},
              o.weight_dtype,
              o.output_dtype,
              static_cast<uint32_t>(tables_.size()),
              sizeof(tsr_kernel_table),
              tables_.data(),
              optimizer_ ? &optimizer_->raw : nullptr,
              options.optimizer_options.c_str(),
              o.max_gradient,
              nullptr,
              o.row_format,
              0};
  }
  ~Model() {
    if (instance != nullptr) api->close(instance);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  tsr_estimate estimate(const tsr_workload& work) {
    Error error;
    tsr_estimate out{};
    out.struct_size = sizeof(out);
    const auto* cost = static_cast<const tsr_kernel_cost*>(extension(TSR_KERNEL_COST));
    if (cost->estimate(kernel_.raw.self, &config, &work, &out, &error) != TSR_OK)
      throw std::runtime_error(error.message);
    return out;
  }
  tsr_code supports(Error& error) { return api->supports(kernel_.raw.self, &config, &error); }
  Model& open() {
    Error error;
    if (api->open(kernel_.raw.self, &config, &instance, &error) != TSR_OK) throw std::runtime_error(error.message);
    return *this;
  }
  const void* extension(const char* id) const { return kernel_.raw.component->extension(kernel_.raw.self, id); }
  uint32_t num_states() const { return tessera::sdk::OptimizerRef(&optimizer_->raw).num_states(); }
  int64_t state_width(uint32_t k, int table) const {
    return tessera::sdk::OptimizerRef(&optimizer_->raw).state_width(k, options.tables[table].dim);
  }

  tsr_kernel_stats stats(uint32_t table) {
    tsr_kernel_stats stats{};
    stats.struct_size = sizeof(stats);
    Error error;
    EXPECT_EQ(api->stats(instance, table, &stats, &error), TSR_OK) << error.message;
    return stats;
  }
  tsr_context* forward(Batch& batch, Array& output) {
    tsr_context* context = nullptr;
    Error error;
    EXPECT_EQ(
        api->forward(instance, &batch.lookup, &output.tensor, nullptr, options.train ? &context : nullptr, &error),
        TSR_OK)
        << error.message;
    return context;
  }
  void backward(Batch& batch, tsr_context* context, Array* grad_weights, double scale, int64_t step) {
    const tsr_backward args = args_of(batch, grad_weights, scale, step);
    Error error;
    EXPECT_EQ(api->backward(instance, context, &args, nullptr, &error), TSR_OK) << error.message;
    api->release(instance, context);
  }
  // Looks `batch` up, then applies every table's gradients, and returns them.
  std::vector<RowGradients> apply_gradients(Batch& batch, double scale) {
    Array output(kF32, batch.output_size);
    tsr_context* context = forward(batch, output);
    const tsr_backward args = args_of(batch, nullptr, scale, 1);
    std::vector<tsr_row_gradient> of_tables(options.tables.size());
    std::vector<RowGradients> out;
    Error error;
    if (api->backward_rows(instance, context, &args, of_tables.data(), nullptr, &error) != TSR_OK)
      throw std::runtime_error(error.message);
    for (uint32_t t = 0; t < of_tables.size(); ++t) {
      const auto& [rows, values] = of_tables[t];
      const auto* row = static_cast<const int64_t*>(rows.data);
      const auto* value = static_cast<const float*>(values.data);
      out.push_back({{row, row + rows.shape[0]}, {value, value + values.shape[0] * values.shape[1]}});
      EXPECT_EQ(api->apply(instance, t, &rows, &values, args.update, nullptr, &error), TSR_OK) << error.message;
    }
    api->release(instance, context);
    return out;
  }
  // The arguments of backward, valid until the next call.
  tsr_backward args_of(Batch& batch, Array* grad_weights, double scale, int64_t step) {
    update_ = {sizeof(tsr_update), 0, 0.0625, step};
    return {sizeof(tsr_backward),
            0,
            &batch.lookup,
            &batch.grad_output->tensor,
            grad_weights == nullptr ? nullptr : &grad_weights->tensor,
            scale,
            &update_};
  }

  // Exports all rows of a table with their states, one after the other.
  std::vector<float> rows_of(int table) {
    std::vector<float> out;
    transfer(table, [&](tsr_rows& rows) {
      Error error;
      uint64_t cursor = 0;
      EXPECT_EQ(api->export_rows(instance, static_cast<uint32_t>(table), &cursor, &rows, &error), TSR_OK)
          << error.message;
      EXPECT_EQ(rows.count, options.tables[table].rows);
      EXPECT_EQ(cursor, static_cast<uint64_t>(options.tables[table].rows));
      append(rows, out);
    });
    return out;
  }
  // Reads the rows with these ids, in the form of rows_of().
  std::vector<float> named_rows_of(int table, const std::vector<int64_t>& ids) {
    std::vector<float> out;
    transfer(table, static_cast<int64_t>(ids.size()), [&](tsr_rows& rows) {
      std::copy(ids.begin(), ids.end(), static_cast<int64_t*>(rows.ids->data));
      Error error;
      EXPECT_EQ(api->read_rows(instance, static_cast<uint32_t>(table), &rows, &error), TSR_OK) << error.message;
      append(rows, out);
    });
    return out;
  }
  // Takes the same rows out of `all`, a result of rows_of().
  std::vector<float> rows_among(int table, const std::vector<int64_t>& ids, const std::vector<float>& all) const {
    std::vector<float> out;
    const TableShape& t = options.tables[static_cast<size_t>(table)];
    auto begin = all.begin();
    const auto take = [&](int64_t width) {
      for (const int64_t id : ids) out.insert(out.end(), begin + id * width, begin + (id + 1) * width);
      begin += t.rows * width;
    };
    take(t.dim);
    for (uint32_t k = 0; k < num_states(); ++k) take(state_width(k, table));
    return out;
  }
  void set_rows(int table, const std::vector<float>& values) {
    transfer(table, [&](tsr_rows& rows) {
      const float* from = values.data();
      const auto put = [&](const DLTensor* t) {
        std::copy_n(from, t->shape[0], static_cast<float*>(t->data));
        from += t->shape[0];
      };
      put(rows.weights);
      for (uint32_t k = 0; k < rows.num_states; ++k) put(rows.states[k]);
      for (int64_t i = 0; i < rows.count; ++i) static_cast<int64_t*>(rows.ids->data)[i] = i;
      Error error;
      EXPECT_EQ(api->import_rows(instance, static_cast<uint32_t>(table), &rows, &error), TSR_OK) << error.message;
    });
  }
  void randomize(Random random) {
    for (size_t t = 0; t < options.tables.size(); ++t) {
      std::vector<float> values = rows_of(static_cast<int>(t));
      const size_t weights = static_cast<size_t>(options.tables[t].rows * options.tables[t].dim);
      std::normal_distribution<float> normal(0, 0.5f);
      for (size_t i = 0; i < weights; ++i) values[i] = std::round(normal(random) * 16) / 16;  // exact in every type
      set_rows(static_cast<int>(t), values);
    }
  }

  Options options;
  const tsr_kernel* api = nullptr;
  tsr_kernel_config config{};
  void* instance = nullptr;

 private:
  static void append(const tsr_rows& rows, std::vector<float>& out) {
    const auto take = [&](const DLTensor* t) {
      const float* data = static_cast<const float*>(t->data);
      out.insert(out.end(), data, data + t->shape[0]);
    };
    take(rows.weights);
    for (uint32_t k = 0; k < rows.num_states; ++k) take(rows.states[k]);
  }
  template <class Body>
  void transfer(int table, Body body) {
    transfer(table, options.tables[table].rows, body);
  }
  template <class Body>
  void transfer(int table, int64_t count, Body body) {
    const TableShape& shape = options.tables[table];
    Array ids(kI64, count), weights(kF32, count * shape.dim);
    std::vector<std::unique_ptr<Array>> states;
    std::vector<const DLTensor*> pointers;
    for (uint32_t k = 0; options.train && k < num_states(); ++k) {
      states.push_back(std::make_unique<Array>(kF32, count * state_width(k, table)));
      pointers.push_back(&states.back()->tensor);
    }
    tsr_rows rows{
        sizeof(tsr_rows), 0,      static_cast<uint32_t>(pointers.size()), 0, count, &ids.tensor, &weights.tensor,
        pointers.data(),  nullptr};
    body(rows);
  }

  Part kernel_;
  std::unique_ptr<Part> optimizer_;
  std::vector<tsr_kernel_table> tables_;
  tsr_update update_{};
};

inline void expect_near(const std::vector<float>& got, const std::vector<float>& want, float rtol, float atol,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - want[i]), atol + rtol * std::abs(want[i]))
        << what << " at " << i << ": " << got[i] << " instead of " << want[i];
  }
}

inline std::vector<float> values_of(Array& array) {
  std::vector<float> out;
  for (int64_t i = 0; i < array.shape[0]; ++i) out.push_back(array.get(i));
  return out;
}

}  // namespace tessera_cpu::test
