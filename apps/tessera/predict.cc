// tessera predict: scores for files of samples.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "command.h"
#include "config/json.h"
#include "data/line_reader.h"
#include "data/readers.h"
#include "options.h"
#include "outputs.h"
#include "plugin_watch.h"
#include "predict/model_data.h"
#include "tessera/config.h"
#include "train/progress.h"
#include "train/report_text.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct PredictArguments {
  std::string model, data, reader, config, output, format = "csv", part = "all", kernel = "auto";
  std::vector<std::string> overrides;
  int64_t batch = 1024;
  int threads = 1;
};

void check(const PredictArguments& a) {
  if (a.model.empty() || (a.data.empty() && a.config.empty()))
    throw UsageError("--model DIR and --data FILE (or --config FILE) are needed: see tessera predict --help");
  if (!a.overrides.empty() && a.config.empty()) throw UsageError("--set changes a config: --config FILE is needed");
  if (a.format != "csv" && a.format != "jsonl")
    throw UsageError("--format takes csv or jsonl, not \"" + a.format + "\"");
  if (a.part != "all" && a.part != "train" && a.part != "test")
    throw UsageError("--part takes all, train or test, not \"" + a.part + "\"");
  if (a.batch < 1 || a.batch > 1 << 20) throw UsageError("--batch takes 1 to 1048576 samples");
  if (a.threads < 0 || a.threads > 1024) throw UsageError("--threads takes 0 (one per core) to 1024");
}

bool parse_predict_arguments(const std::vector<std::string>& args, PredictArguments* out) {
  Options options("predict", "--model DIR --data FILE [OPTIONS]");
  auto add = options.add_options();
  add("model", po::value(&out->model)->value_name("DIR"), "a packed model: tessera quantize makes them");
  add("data", po::value(&out->data)->value_name("FILE"),
      "what the model was trained on by csv, tsv, ... (file, directory or pattern); or a file in the prepared format "
      "whose "
      "columns are the model's features in its order; or what --reader reads; - is standard input, read to its end "
      "first");
  add("reader", po::value(&out->reader)->value_name("NAME"), "of docs/config.md: csv, prepared, criteo-tsv, ...");
  add("config", po::value(&out->config)->value_name("FILE"), "the job whose [data] is read; --data replaces its path");
  add("set", po::value(&out->overrides)->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  add("part", po::value(&out->part)->value_name("PART"),
      "of what a reader gives: all (train, then test), train or test");
  add("output", po::value(&out->output)->value_name("FILE"), "instead of standard output");
  add("format", po::value(&out->format)->value_name("FORMAT"),
      "csv (row,label,score; of data without labels row,score) or jsonl");
  add("batch", po::value(&out->batch)->value_name("N"), "samples predicted together (default 1024)");
  add("threads", po::value(&out->threads)->value_name("N"), "for one batch (default 1; 0: one per core)");
  add("kernel", po::value(&out->kernel)->value_name("ID"), "kernel plugin (default: the best)");
  if (!parse_options(args, options)) return false;
  check(*out);
  return true;
}

// A text file of prepared lines without a description: its columns are the model's.
Dataset read_prepared_file(const std::string& path, const ModelDescription& model) {
  Dataset set;
  set.name = path;
  for (int64_t i = 0; i < model.dense_inputs; ++i) set.dense.push_back(cat("I", i + 1));
  for (const ModelFeature& f : model.features) set.columns.push_back({f.name, f.ids, "sum"});
  data::Examples examples(set.dense.size(), set.columns), none(set.dense.size(), set.columns);
  data::LineReader lines(path);
  for (std::string_view line; lines.next(line);) data::add_prepared_line(line, path, lines.line(), examples);
  set.train = data::finish(std::move(examples));
  set.test = data::finish(std::move(none));
  return set;
}

// Standard input as a file, which readers may read several times; it has no name, and goes with its owner.
class StandardInput {
 public:
  StandardInput() : file_(std::tmpfile()) {
    constexpr size_t kPart = size_t{1} << 20;
    std::vector<char> part(kPart);
    bool good = file_ != nullptr;
    for (size_t n = 0; good && (n = std::fread(part.data(), 1, part.size(), stdin)) > 0;)
      good = std::fwrite(part.data(), 1, n, file_) == n;
    if (!good || std::ferror(stdin) != 0 || std::fflush(file_) != 0) {
      close();
      fail(Code::kUnavailable, "standard input cannot be kept in a temporary file: ", std::strerror(errno));
    }
  }
  ~StandardInput() { close(); }
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

  std::string path() const { return cat("/proc/self/fd/", ::fileno(file_)); }
  // An error's sentence without that path.
  std::string named(std::string sentence) const {
    for (size_t at = 0; (at = sentence.find(path(), at)) != std::string::npos;)
      sentence.replace(at, path().size(), "standard input");
    return sentence;
  }

 private:
  void close() {
    if (file_ != nullptr) std::fclose(file_);
  }
  std::FILE* file_;
};

// What reads the model's own data, where that was a reader part.
std::string own_reader(const ModelDescription& model) {
  if (model.encoding.empty()) return "prepared";
  const config::JsonSource source{"the model's encoding of columns", Code::kDataLoss};
  const json encoding = config::parse_json(model.encoding, source);
  return config::JsonObject(encoding, source).get<std::string>("reader");
}

Dataset read_data(const PredictArguments& a, Config config, const Runtime& runtime, const ModelDescription& model) {
  std::error_code ignored;
  const bool pattern = a.data.find_first_of("*?[") != std::string::npos;
  if (!a.data.empty() && !pattern && !std::filesystem::exists(a.data, ignored))
    fail(Code::kNotFound, "--data: there is no file or directory ", a.data);
  const bool bare = a.reader.empty() && a.config.empty();
  if (bare && model.encoding.empty() && std::filesystem::is_regular_file(a.data, ignored))
    return read_prepared_file(a.data, model);
  DataConfig& data = config.data;
  if (a.config.empty()) {
    data.reader = bare ? own_reader(model) : a.reader;
    data.test_fraction = 0;
    for (const ModelFeature& f : model.features) data.rows.push_back(f.ids);  // for readers that hash
  } else if (!a.reader.empty()) {
    data.reader = a.reader;
  }
  if (!a.data.empty()) data.path = a.data;
  const std::vector<std::string> inside = reader_names();
  if (std::find(inside.begin(), inside.end(), data.reader) != inside.end())
    return read_dataset(runtime, config, model.encoding);
  return data::read_files(runtime, config, model.encoding, false);
}

// One line per sample.
class ScoreWriter {
 public:
  ScoreWriter(const std::string& path, bool as_json, bool labelled)
      : path_(path), as_json_(as_json), labelled_(labelled) {
    if (!path.empty()) {
      file_.open(path, std::ios::binary);
      if (!file_) fail(Code::kUnavailable, "cannot write to ", path);
    }
    if (!as_json_) out() << (labelled_ ? "row,label,score\n" : "row,score\n");
  }
  void add(float label, float score) {
    char line[96];
    int n = std::snprintf(line, sizeof(line), as_json_ ? "{\"row\": %lld" : "%lld", static_cast<long long>(row_++));
    const auto add_number = [&](const char* format, float number) {
      n += std::snprintf(line + n, sizeof(line) - static_cast<size_t>(n), format, static_cast<double>(number));
    };
    if (labelled_) add_number(as_json_ ? ", \"label\": %g" : ",%g", label);
    add_number(as_json_ ? ", \"score\": %.9g}\n" : ",%.9g\n", score);
    out().write(line, n);
  }
  void finish() {
    out().flush();
    if (!out()) fail(Code::kUnavailable, "cannot write to ", path_.empty() ? "standard output" : path_);
  }

 private:
  std::ostream& out() { return path_.empty() ? std::cout : file_; }

  std::string path_;
  bool as_json_, labelled_;
  std::ofstream file_;
  int64_t row_ = 0;
};

int predict(const PredictArguments& a) {
  const Config config = a.config.empty() ? Config{} : load_config(a.config, a.overrides);
  check_outputs({{"--output", a.output}}, {{a.config, a.data, config.data.path, config.data.test_path}, {a.model}});
  const PluginWatch watch;
  const Runtime runtime({config.plugins.path, config.plugins.require, true, a.threads});
  const auto predictor = open_predictor(runtime, a.model, {a.kernel});
  const Dataset data = read_data(a, config, runtime, predictor->model());
  if (predictor->model().bounds_check == BoundsCheckMode::kFatal) data.require_known_ids();
  std::vector<Samples> parts;
  int64_t rows = 0;
  if (a.part != "test") parts.push_back(data.train), rows += data.train_rows();
  if (a.part != "train") parts.push_back(data.test), rows += data.test_rows();

  // Data that do not fit are refused before anything is written.
  const BatchInput fits(predictor->model(), data.columns, static_cast<int64_t>(data.dense.size()));
  ScoreWriter writer(a.output, a.format == "jsonl", data.labelled);
  // Scores on a terminal are their own progress.
  Progress progress({.steps = rows, .log_every = 0, .terminal = stderr_is_terminal() && !a.output.empty()});
  MetricSet all = metrics_of(predictor->model(), data.train.streamed || data.test.streamed);
  int64_t done = 0;
  const auto sink = [&](std::span<const float> scores, const Tensor& labels, const Batch& batch) {
    for (size_t i = 0; i < scores.size(); ++i) writer.add(labels.data<float>()[i], scores[i]);
    if (data.labelled) add_scores(all, predictor->model(), scores, labels, batch);
    done += static_cast<int64_t>(scores.size());
    progress.report(done, done);
  };
  try {
    for (const Samples& part : parts) predict_all(*predictor, data, part, a.batch, sink);
  } catch (const Error& e) {  // which counts the samples of one batch
    fail(e.code(), "in the batch that begins at row ", done, ": ", e.what());
  }
  progress.finish();
  writer.finish();
  if (data.labelled) std::fprintf(stderr, "%s\n", metrics_text(all.values(), 6).c_str());
  return 0;
}

}  // namespace

int predict_command(const std::vector<std::string>& args) {
  PredictArguments a;
  if (!parse_predict_arguments(args, &a)) return 0;
  if (a.data != "-") return predict(a);
  const StandardInput input;
  a.data = input.path();
  try {
    return predict(a);
  } catch (const Error& e) {
    fail(e.code(), input.named(e.what()));
  }
}

}  // namespace tessera::cli
