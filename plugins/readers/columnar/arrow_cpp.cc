// Reads Parquet and Arrow IPC files with Arrow C++; batches are passed on through the C stream interface.
#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/byte_size.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>

#include "columnar/opened.h"
#include "columnar/source.h"

namespace tessera_readers {
namespace {

// Arrow's message in one line, without the kind of failure.
std::string said(const arrow::Status& status) {
  std::string text = status.message();
  text.resize(std::min(text.find('\n'), text.size()));
  while (text.ends_with('.') || text.ends_with(' ')) text.pop_back();
  return text;
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw BrokenStream(said(status));
}

template <class T>
T check(arrow::Result<T> result) {
  check(result.status());
  return std::move(result).ValueUnsafe();
}

std::shared_ptr<arrow::io::ReadableFile> file_at(const std::string& path) {
  return check(arrow::io::ReadableFile::Open(path));
}

class ParquetSource : public ArrowSource {
 public:
  explicit ParquetSource(const std::string& path) : file_(file_at(path)) {
    // Column chunks are read through a buffer, because a row group may be larger than data.buffer_mib allows.
    properties_.enable_buffered_stream();
    properties_.set_buffer_size(kBuffer);
    properties_.set_page_checksum_verification(true);
    reader_ = open(1, nullptr);
    metadata_ = reader_->parquet_reader()->metadata();
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema));
    check(arrow::ExportSchema(*schema, schema_.out()));
    for (int i = 0; i < metadata_->num_row_groups(); ++i) units_.push_back(unit(*metadata_->RowGroup(i)));
  }

  const ArrowSchema& schema() const override { return *schema_; }
  const std::vector<Unit>& units() const override { return units_; }
  void read(int64_t unit, std::span<const int> columns, int64_t rows, ArrowArrayStream* out) override {
    try {
      if (rows != batch_rows_) reader_ = open(rows, metadata_);
      std::vector<int> leaves;
      for (const int column : columns)
        add_leaves(reader_->manifest().schema_fields[static_cast<size_t>(column)], leaves);
      std::shared_ptr<arrow::RecordBatchReader> batches =
          check(reader_->GetRecordBatchReader({static_cast<int>(unit)}, leaves));
      check(arrow::ExportRecordBatchReader(std::move(batches), out));
    } catch (const parquet::ParquetException& e) {
      throw BrokenStream(e.what());
    }
  }

 private:
  static constexpr int64_t kBuffer = int64_t{256} << 10;

  std::unique_ptr<parquet::arrow::FileReader> open(int64_t rows, std::shared_ptr<parquet::FileMetaData> metadata) {
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_, properties_, std::move(metadata)));
    parquet::ArrowReaderProperties arrow_properties(/*use_threads=*/false);
    arrow_properties.set_pre_buffer(false);
    arrow_properties.set_batch_size(rows);
    builder.properties(arrow_properties);
    batch_rows_ = rows;
    return check(builder.Build());
  }

  static void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& out) {
    if (field.is_leaf()) out.push_back(field.column_index);
    for (const parquet::arrow::SchemaField& child : field.children) add_leaves(child, out);
  }

  // Estimates memory: numbers as in memory, texts as in the file, where a dictionary has each text once.
  static Unit unit(const parquet::RowGroupMetaData& group) {
    Unit out{group.num_rows(), 0};
    for (int i = 0; i < group.num_columns(); ++i) {
      const auto column = group.ColumnChunk(i);
      constexpr int64_t kNumber = 8;
      out.bytes += std::max(column->num_values() * kNumber, column->total_uncompressed_size());
    }
    return out;
  }

  std::shared_ptr<arrow::io::ReadableFile> file_;
  parquet::ReaderProperties properties_;
  int64_t batch_rows_ = 0;  // of reader_
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  ArrowOwner<ArrowSchema> schema_;
  std::vector<Unit> units_;
};

class IpcSource : public ArrowSource {
 public:
  explicit IpcSource(const std::string& path) : file_(file_at(path)), reader_(open({})) {
    check(arrow::ExportSchema(*reader_->schema(), schema_.out()));
    const int batches = reader_->num_record_batches();
    if (batches == 0) return;
    const std::shared_ptr<arrow::RecordBatch> first = check(reader_->ReadRecordBatch(0));
    const int64_t row_bytes =
        check(arrow::util::ReferencedBufferSize(*first)) / std::max<int64_t>(first->num_rows(), 1);
    const auto counting = first->num_columns() > 0 ? open({0}) : reader_;
    for (int i = 0; i < batches; ++i) {
      const int64_t rows = check(counting->ReadRecordBatch(i))->num_rows();
      units_.push_back({rows, rows * std::max<int64_t>(row_bytes, 1)});
    }
  }

  const ArrowSchema& schema() const override { return *schema_; }
  const std::vector<Unit>& units() const override { return units_; }
  // A record batch can only be read whole.
  void read(int64_t unit, std::span<const int> columns, int64_t, ArrowArrayStream* out) override {
    const std::vector<int> wanted(columns.begin(), columns.end());
    if (wanted != columns_) reader_ = open(wanted);
    const std::shared_ptr<arrow::RecordBatch> batch = check(reader_->ReadRecordBatch(static_cast<int>(unit)));
    check(batch->ValidateFull());  // nothing in the file protects offsets
    check(arrow::ExportRecordBatchReader(check(arrow::RecordBatchReader::Make({batch})), out));
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> open(const std::vector<int>& columns) {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.included_fields = columns;
    columns_ = columns;
    return check(arrow::ipc::RecordBatchFileReader::Open(file_, options));
  }

  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::vector<int> columns_;  // of reader_; empty: all
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  ArrowOwner<ArrowSchema> schema_;
  std::vector<Unit> units_;
};

}  // namespace

ArrowOpener arrow_cpp_opener(const ArrowFormat& format) {
  return [format](const std::string& path) {
    return opened(path, format, [&]() -> std::unique_ptr<ArrowSource> {
      if (format.parquet) return std::make_unique<ParquetSource>(path);
      return std::make_unique<IpcSource>(path);
    });
  };
}

}  // namespace tessera_readers
