// pack_model() turns float tables into a directory of quantized rows.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "checkpoint/safetensors.h"
#include "inference/int8_dense.h"
#include "inference/manifest.h"
#include "inference/packed_model.h"
#include "inference/staging.h"
#include "inference/table_file.h"
#include "tessera/predictor.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace inference {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

// Converts rows of floats to rows of a format, block by block, and measures the error.
class RowPacker {
 public:
  RowPacker(const QuantizedTable& from, RowFormat format)
      : from_(from), dim_(from.config.embedding_dim), stride_(sdk::row_bytes(format, dim_, kRowAlignment)) {
    report_.table = from.config.name;
    report_.format = format;
    const int64_t bytes = from.config.data_type == DType::kBFloat16 ? dim_ * size_of(DType::kBFloat16)
                                                                    : sdk::row_bytes(*from.config.row_format, dim_);
    report_.bytes_before = from.config.num_embeddings * bytes;
    report_.bytes_after = from.config.num_embeddings * stride_;
    values_.resize(static_cast<size_t>(dim_));
    back_.resize(static_cast<size_t>(dim_));
  }

  void pack(checkpoint::OutputFile& file) {
    const int64_t rows = from_.config.num_embeddings, at_once = std::max<int64_t>(1, kBlockBytes / stride_);
    std::vector<uint8_t> block;
    for (int64_t row = 0; row < rows; row += at_once) {
      const int64_t count = std::min(at_once, rows - row);
      block.assign(static_cast<size_t>(count * stride_), 0);
      for (int64_t i = 0; i < count; ++i) pack_row(row + i, block.data() + i * stride_);
      file.write_at(kHeaderBytes + row * stride_, block.data(), count * stride_);
    }
    if (rows > 0) report_.mean_error = sum_ / static_cast<double>(rows * dim_);
  }

  const TableReport& report() const { return report_; }

 private:
  void pack_row(int64_t row, uint8_t* out) {
    sdk::decode_row(*from_.config.row_format, from_.rows.data<uint8_t>() + row * from_.rows.size(1), dim_,
                    values_.data());
    const int64_t at = sdk::first_non_finite(values_.data(), dim_);
    if (at >= 0) {
      fail(Code::kInvalidArgument, "table \"", from_.config.name, "\", row ", row, ": its value ",
           values_[static_cast<size_t>(at)], " in column ", at, " is not finite and cannot be packed");
    }
    sdk::encode_row(report_.format, values_.data(), dim_, out);
    sdk::decode_row(report_.format, out, dim_, back_.data());
    if (sdk::first_non_finite(back_.data(), dim_) >= 0 ||
        sdk::first_clipped(report_.format, values_.data(), dim_) >= 0) {
      const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
      fail(Code::kInvalidArgument, "table \"", from_.config.name, "\", row ", row, ": its values from ", *least, " to ",
           *most, " are too large for ", sdk::to_string(report_.format), ": pack this table as fp32");
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      const double error = std::abs(static_cast<double>(values_[i]) - static_cast<double>(back_[i]));
      report_.worst_error = std::max(report_.worst_error, error);
      sum_ += error;
    }
  }

  const QuantizedTable& from_;
  int64_t dim_, stride_;
  double sum_ = 0;
  TableReport report_;
  std::vector<float> values_, back_;
};

// `write(file)` writes the rows.
template <class Write>
StoredFile write_table(const Staging& staging, size_t index, const EmbeddingBagConfig& config, const Write& write) {
  std::string name = str_cat("table-", index, ".rows");
  const TableHeader header = header_of(config);
  checkpoint::OutputFile file(staging.file(name), file_bytes(header));
  file.write_at(0, &header, sizeof(header));
  write(file);
  file.sync();
  return {std::move(name), file.size(), file.crc32()};
}

StoredFile write_tensors(const Staging& staging, const std::string& file,
                         const std::map<std::string, Tensor>& tensors) {
  checkpoint::StoredTensors announced;
  for (const auto& [name, value] : tensors) announced[name] = {value.dtype(), value.shape(), 0};
  checkpoint::SafetensorsWriter writer(staging.file(file), std::move(announced));
  for (const auto& [name, value] : tensors) writer.write(name, value);
  writer.file().sync();
  return {file, writer.file().size(), writer.file().crc32()};
}

// Writes the ids of a table's rows, if they have their own.
void write_keys(const Staging& staging, size_t index, Manifest::Table& table) {
  const auto& remapping = table.config.remapping;
  if (!remapping) return;
  table.keys = write_tensors(staging, str_cat("table-", index, ".keys"),
                             {{kKeysTensor, remapping->keys()}, {kSeatsTensor, remapping->seats()}});
  table.ids = remapping->ids();
}

// Checks everything that can be checked before anything is written.
void check_formats(const InferenceModel& model, const PackOptions& options) {
  const auto name_of = [](const QuantizedTable& t) -> const std::string& { return t.config.name; };
  for (const auto& [name, format] : options.formats) {
    const auto at = std::find_if(model.tables.begin(), model.tables.end(),
                                 [&name = name](const QuantizedTable& t) { return t.config.name == name; });
    if (at == model.tables.end())
      fail(Code::kNotFound, "there is no table \"", name,
           "\" in this model, which has: ", sdk::joined(model.tables, name_of));
  }
  for (const QuantizedTable& t : model.tables) {
    if (t.config.remapping && !t.config.remapping->keys().defined()) {
      fail(Code::kUnimplemented, "table \"", t.config.name,
           "\" has pruned rows and a remapping of ids, which a packed model cannot keep: give it the rows of all ids, "
           "those of pruned ones as zeros, and no remapping; or predict from a QuantEmbeddingBagCollection");
    }
    if (sdk::info_of(*t.config.row_format).header != 0) {
      fail(Code::kInvalidArgument, "table \"", t.config.name, "\" is in ", sdk::to_string(*t.config.row_format),
           " already: a model is packed from floats");
    }
    const auto own = options.formats.find(t.config.name);
    const RowFormat format = own == options.formats.end() ? options.format : own->second;
    // Throws an error that says which columns a format cannot have.
    (void)quantize_rows(Tensor::empty({0, t.config.embedding_dim}), format, t.config.name);
  }
}

std::string last_name(const std::string& directory) {
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

// Leaves out tables and the dense part.
Manifest manifest_of(const InferenceModel& model, const std::string& name) {
  Manifest out;
  out.name = name;
  out.type = model.description.type;
  out.dlrm = model.dlrm;
  out.graph = model.graph;
  out.bounds_check = model.description.bounds_check;
  out.is_weighted = model.description.is_weighted;
  out.encoding = model.description.encoding;
  out.trained_on = model.description.trained_on;
  out.int8_layers = !model.int8_weights.empty();
  return out;
}

void commit(Staging& staging, Manifest& manifest, const InferenceModel& model) {
  manifest.dense = write_tensors(staging, kDenseFile, stored_dense(model));
  checkpoint::write_text(staging.file(kManifestFile), manifest.json());
  staging.commit();
}

}  // namespace

void copy_packed_model(const InferenceModel& model, const std::string& directory) {
  Staging staging(directory);
  Manifest manifest = manifest_of(model, model.description.name);
  for (size_t t = 0; t < model.tables.size(); ++t) {
    const QuantizedTable& table = model.tables[t];
    const auto write = [&](checkpoint::OutputFile& file) {
      if (table.rows.bytes() > 0) file.write_at(kHeaderBytes, table.rows.raw(), table.rows.bytes());
    };
    manifest.tables.push_back({table.config, write_table(staging, t, table.config, write), {}, 0, table.figures});
    write_keys(staging, t, manifest.tables.back());
  }
  commit(staging, manifest, model);
}

}  // namespace inference

using namespace inference;

std::vector<TableReport> pack_model(const InferenceModel& model, const std::string& directory,
                                    const PackOptions& options) {
  check_formats(model, options);
  Staging staging(directory);
  Manifest manifest = manifest_of(model, options.name.empty() ? last_name(directory) : options.name);
  std::vector<TableReport> reports;
  for (size_t t = 0; t < model.tables.size(); ++t) {
    EmbeddingBagConfig config = model.tables[t].config;
    const auto own = options.formats.find(config.name);
    config.row_format = own == options.formats.end() ? options.format : own->second;
    RowPacker packer(model.tables[t], *config.row_format);
    const auto write = [&](checkpoint::OutputFile& file) { packer.pack(file); };
    manifest.tables.push_back({config, write_table(staging, t, config, write), {}, 0, model.tables[t].figures});
    write_keys(staging, t, manifest.tables.back());
    reports.push_back(packer.report());
  }
  commit(staging, manifest, model);
  return reports;
}

}  // namespace tessera
