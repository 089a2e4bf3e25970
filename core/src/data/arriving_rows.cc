#include "data/arriving_rows.h"

#include <filesystem>
#include <limits>
#include <optional>

#include "data/readers.h"
#include "tessera/calls.h"

namespace tessera::data {
namespace {

Columns columns_of(const Config& config, const std::string& encoding) {
  Columns columns = encoding.empty() ? Columns(config) : Columns(encoding, "the model's encoding of columns");
  if (!encoding.empty() && !config.columns.empty()) columns.require_same(Columns(config));
  if (const std::string learns = columns.learning(); !learns.empty())
    fail(Code::kInvalidArgument, "[[column]] \"", learns,
         "\" learns from all training rows before the first step, but rows that arrive have no end: hash its texts "
         "(ids = \"hash\"), leave standardise out, set missing to a number, or continue from a trained model with "
         "--load");
  return columns;
}

void check_settings(const Config& config) {
  const DataConfig& data = config.data;
  const auto refuse = [&](const char* key, bool given) {
    if (given)
      fail(Code::kInvalidArgument, key, " has no effect on rows that arrive, which \"", data.reader,
           "\" reads in their order, without end: leave it out");
  };
  refuse("data.test", !data.test.empty());
  refuse("data.test_path", !data.test_path.empty());
  refuse("data.order_by", !data.order_by.empty());
  refuse("data.limit", data.limit > 0);
  if (config.validation.fraction > 0 || config.validation.folds > 0)
    fail(Code::kInvalidArgument, "validation.fraction keeps rows back, but the rows that \"", data.reader,
         "\" reads have no end: use metrics.training, which judges each batch by the model of the rows before it");
}

}  // namespace

bool ArrivingRows::reads(const Runtime& runtime, const std::string& reader, const char* draft) {
  const std::string id = reader.substr(0, reader.find_first_of("?:("));
  if (!runtime.has(TSR_READER_KIND, id)) return false;
  return runtime.ask(TSR_READER_KIND, reader)->extension<tsr_reader_arriving>(draft) != nullptr;
}

std::string ArrivingRows::file_reader(const Runtime& runtime, const std::string& reader) {
  if (!reads(runtime, reader)) return reader;
  std::string inner = parse_component_name(reader).inner;
  if (inner.empty())
    fail(Code::kInvalidArgument, "the rows that \"", reader,
         "\" reads have no end: use --reader csv, or another reader of files, for a file with the model's columns");
  if (!reads(runtime, inner)) return inner;
  return reader.substr(0, reader.size() - inner.size() - 1) + file_reader(runtime, inner) + ")";
}

ArrivingRows::ArrivingRows(const Runtime& runtime, const Config& config, const std::string& encoding, const char* draft)
    : part_(runtime.create(TSR_READER_KIND, config.data.reader)),
      api_(part_->extension<tsr_reader_arriving>(draft)),
      skips_(part_->extension<tsr_reader_skips>(TSR_READER_SKIPS)),
      pipe_(std::string_view(draft) == TSR_READER_PIPE),
      path_(config.data.path),
      columns_(columns_of(config, encoding)) {
  TESSERA_CHECK(api_ != nullptr, "reads() was asked");
  check_settings(config);
  if (!pipe_) columns_.meet(columns_of(*part_), true);
}

Dataset ArrivingRows::dataset() const {
  Dataset out{.name = std::filesystem::path(path_).filename()};
  describe(columns_, &out);
  out.encoding = columns_.json();
  out.labelled = columns_.labelled();
  return out;
}

Examples ArrivingRows::form() const {
  return {static_cast<size_t>(columns_.dense_width()), columns_.ids(), columns_.label_form()};
}

void ArrivingRows::follow(const std::string& position) {
  const tsr_reader_source source{sizeof(source), 0, path_.c_str(), int64_t{1} << 20};
  plugin::call({*part_, "follow", path_}, api_->follow, part_->self(), &source,
               position.empty() ? nullptr : position.c_str());
  if (pipe_) columns_.meet(columns_of(*part_), false);
  std::vector<tsr_reader_want> wants;
  const std::vector<WantedColumn> wanted = columns_.wanted();
  for (const WantedColumn& w : wanted) wants.push_back(raw_want(w));
  plugin::call({*part_, "select"}, reader().select, part_->self(), std::ssize(wants), sizeof(tsr_reader_want),
               wants.data());
  values_.resize(wants.size());
}

ArrivingRows::Taken ArrivingRows::take(int64_t most, double wait_s, Examples& out, std::vector<double>& times) {
  for (tsr_reader_values& v : values_) v = {sizeof(v), 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  tsr_reader_arrived got{sizeof(got), 0, 0, 0, "", nullptr};
  plugin::call({*part_, "next"}, api_->next, part_->self(), most, wait_s, sizeof(tsr_reader_values), values_.data(),
               &got);
  const int64_t before = out.size();
  if (got.rows > 0) add(got, 0, got.rows, out, times);
  return {out.size() - before, (got.flags & TSR_ARRIVED_LAST) != 0};
}

// Adds rows [first, first + rows) of those that a call returned.
void ArrivingRows::add(const tsr_reader_arrived& got, int64_t first, int64_t rows, Examples& out,
                       std::vector<double>& times) {
  const std::string where = got.where;
  std::optional<Examples> apart;  // with skips: a bad row's unknown id is noticed only after it was added
  if (skips_ != nullptr) apart.emplace(form());
  Examples& to = apart ? *apart : out;
  try {
    columns_.append({where, got.first_row, first, rows}, values_, to);
    if (known_ids_ && !to.bad_id().empty()) fail(Code::kInvalidArgument, to.bad_id());
  } catch (const Error& e) {
    if (skips_ == nullptr) throw;
    for (int64_t row = first; rows > 1 && row < first + rows; ++row) add(got, row, 1, out, times);
    if (rows > 1) return;
    return plugin::call({*part_, "skip"}, skips_->skip, part_->self(), first, e.what());
  }
  for (int64_t s = 0; apart && s < apart->size(); ++s) out.add_sample(*apart, s);
  for (int64_t row = first; row < first + rows; ++row)
    times.push_back(got.times != nullptr ? got.times[row] : std::numeric_limits<double>::quiet_NaN());
}

std::string ArrivingRows::position() const {
  const char* text = nullptr;
  plugin::call({*part_, "position"}, api_->position, part_->self(), &text);
  return text;
}

}  // namespace tessera::data
