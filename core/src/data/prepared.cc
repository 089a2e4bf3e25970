// The prepared format: meta.json and two text files with one sample per line.

#include "config/json.h"
#include "config/read_file.h"
#include "data/line_reader.h"
#include "data/readers.h"

namespace tessera::data {
namespace {

using config::JsonObject;

struct Place {
  const std::string& file;
  int64_t line;
  template <class... Parts>
  std::string sentence(const Parts&... parts) const {
    return str_cat(file, ":", line, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(Code::kInvalidArgument, sentence(parts...));
  }
};

// Adds labels, and the weight after them if there are weights.
void add_labels(std::string_view field, const Place& place, Examples& examples) {
  const LabelForm& form = examples.label_form();
  if (form.binary && field.substr(0, field.find(',')) != "0" && field.substr(0, field.find(',')) != "1")
    place.wrong("the label is \"", field.substr(0, 20), "\", but must be 0 or 1");
  std::string_view rest = field;
  for (size_t i = 0; i < form.values(); ++i) {
    float value = 0;
    if (finished(rest) || !parse_number(cut(rest, ','), value))
      place.wrong("the labels", form.weighted ? " and the weight" : "", " are \"", field.substr(0, 40),
                  "\", but must be ", form.values(), form.values() == 1 ? " number" : " numbers with commas between");
    if (form.weighted && i == form.labels && value < 0) place.wrong("the sample's weight ", value, " is below 0");
    if (i == 0)
      examples.begin_sample(value);
    else
      examples.add_label(value);
  }
  if (!finished(rest)) place.wrong("there are more than ", form.values(), " labels");
}

void add_dense_values(std::string_view field, const Place& place, Examples& examples) {
  for (int64_t i = 0; i < examples.num_dense(); ++i) {
    float value = 0;
    if (finished(field) || !parse_number(cut(field, ','), value)) {
      place.wrong("the dense values are not ", examples.num_dense(), " numbers with commas between");
    }
    examples.add_dense(value);
  }
  if (!finished(field) && examples.num_dense() > 0) {
    place.wrong("there are more than ", examples.num_dense(), " dense values");
  }
}

void add_bag(std::string_view field, const DataColumn& column, const Place& place, Examples& examples) {
  while (!field.empty()) {
    const std::string_view text = cut(field, ',');
    int64_t id = 0;
    const bool comma_at_end = !finished(field) && field.empty();
    if (!parse_number(text, id) || comma_at_end) {
      place.wrong("column \"", column.name, "\" is not a list of row numbers with commas between");
    }
    if (!examples.add_id(id) && examples.bad_id().empty()) {
      examples.note_bad_id(place.sentence("column \"", column.name, "\"", bad_id_text(id, column.rows)));
    }
  }
  examples.end_bag();
}

ExamplesPtr read_part(const std::string& path, const Dataset& set, int64_t limit, int64_t expected_rows) {
  Examples examples(set.dense.size(), set.columns, {set.labels.size(), set.weighted_samples, set.binary_labels});
  LineReader lines(path);
  for (std::string_view line; lines.next(line);) {
    if (limit > 0 && examples.size() == limit) return finish(std::move(examples));
    add_prepared_line(line, path, lines.line(), examples);
  }
  if (expected_rows >= 0 && examples.size() != expected_rows) {
    fail(Code::kDataLoss, path, " has ", examples.size(), " rows, but its meta.json says ", expected_rows);
  }
  return finish(std::move(examples));
}

std::string read_whole(const std::string& path) {
  return config::read_file(path, "cannot read ", "; data.path must be a directory of prepared data");
}

// The number of rows in meta.json; -1: it does not say.
int64_t promised_rows(const JsonObject& meta, const char* part) {
  return meta.has(part) ? meta.object(part).get<int64_t>("rows", -1) : -1;
}

Dataset described_by(const JsonObject& meta) {
  Dataset set;
  set.name = meta.get<std::string>("name", "");
  set.binary_labels = !meta.has("labels");
  if (!set.binary_labels) set.labels = meta.get<std::vector<std::string>>("labels");
  if (set.labels.empty()) meta.wrong("labels is empty: leave it out if there is one label");
  set.weighted_samples = meta.get<bool>("sample_weights", false);
  set.dense = meta.get<std::vector<std::string>>("dense");
  for (const JsonObject& column : meta.objects("columns")) {
    set.columns.push_back(
        {column.get<std::string>("name"), column.get<int64_t>("rows"), column.get<std::string>("pooling", "sum")});
    if (set.columns.back().rows < 1) column.wrong("column \"", set.columns.back().name, "\" has no rows");
  }
  return set;
}

}  // namespace

void add_prepared_line(std::string_view text, const std::string& file, int64_t line, Examples& examples) {
  const Place place{file, line};
  add_labels(cut(text, '\t'), place, examples);
  const auto too_few = [&] {
    place.wrong("a line has ", 2 + examples.num_columns(), " fields with tabs between; this one has fewer");
  };
  if (finished(text)) too_few();
  add_dense_values(cut(text, '\t'), place, examples);
  for (const DataColumn& column : examples.columns()) {
    if (finished(text)) too_few();
    add_bag(cut(text, '\t'), column, place, examples);
  }
  if (!finished(text)) place.wrong("there are more than ", 2 + examples.num_columns(), " fields");
  examples.end_sample();
}

Dataset parse_meta(const std::string& text, const std::string& file) {
  return described_by(JsonObject(config::parse_json(text, {file}), {file}));
}

Dataset describe_prepared(const DataConfig& config) {
  const std::string file = config.path + "/meta.json";
  return parse_meta(read_whole(file), file);
}

Dataset read_prepared(const DataConfig& config, uint64_t) {
  const std::string file = config.path + "/meta.json";
  const nlohmann::ordered_json root = config::parse_json(read_whole(file), {file});
  const JsonObject meta(root, {file});
  Dataset set = described_by(meta);
  set.train = read_part(text_file(config.path, "train.tsv"), set, config.limit, promised_rows(meta, "train"));
  set.test = read_part(text_file(config.path, "test.tsv"), set, config.limit, promised_rows(meta, "test"));
  return set;
}

}  // namespace tessera::data
