// tessera predict: scores for files of samples.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>

#include "command.h"
#include "config/json.h"
#include "data/line_reader.h"
#include "data/readers.h"
#include "options.h"
#include "outputs.h"
#include "plugin_watch.h"
#include "predict/items.h"
#include "predict/model_data.h"
#include "retrieval/retriever.h"
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
  std::string vectors;
  retrieval::RetrieverOptions retrieval;
};

void check(const PredictArguments& a) {
  if (a.model.empty() || (a.data.empty() && a.config.empty()))
    throw UsageError("--model DIR and --data FILE (or --config FILE) are needed: see tessera predict --help");
  if (!a.overrides.empty() && a.config.empty()) throw UsageError("--set changes a config: --config FILE is needed");
  if (a.format != "csv" && a.format != "jsonl")
    throw UsageError("--format takes csv or jsonl, not \"" + a.format + "\"");
  if (a.part != "all" && a.part != "train" && a.part != "test")
    throw UsageError("--part takes all, train or test, not \"" + a.part + "\"");
  retrieval::check(a.retrieval);
  if (!a.vectors.empty() && (a.retrieval.top_k > 0 || a.output.empty()))
    throw UsageError("--vectors LAYER needs --output FILE, and is not for --top-k");
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
      "columns are the model's features in its order; or what --reader reads; - is standard input, of which readers "
      "take a copy first");
  add("reader", po::value(&out->reader)->value_name("NAME"), "of docs/config.md: csv, prepared, criteo-tsv, ...");
  add("config", po::value(&out->config)->value_name("FILE"), "the job whose [data] is read; --data replaces its path");
  add("set", po::value(&out->overrides)->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  add("part", po::value(&out->part)->value_name("PART"),
      "of what a reader gives: all (train, then test), train or test");
  add("output", po::value(&out->output)->value_name("FILE"), "instead of standard output");
  add("format", po::value(&out->format)->value_name("FORMAT"),
      "csv (row,label,score; of data without labels row,score) or jsonl");
  add("vectors", po::value(&out->vectors)->value_name("LAYER"),
      "instead of scores the values of a layer, as safetensors: what --items takes");
  add("top-k", po::value(&out->retrieval.top_k)->value_name("K"),
      "instead of scores the K items whose vectors have the largest dot products with --query's values");
  add("items", po::value(&out->retrieval.items)->value_name("TABLE|FILE"),
      "of --top-k: a table of the model, or what --vectors has written");
  add("query", po::value(&out->retrieval.query)->value_name("LAYER"),
      "of --top-k (default: what the first head takes)");
  add("batch", po::value(&out->batch)->value_name("N"), "samples predicted together (default 1024)");
  add("threads", po::value(&out->threads)->value_name("N"), "for one batch (default 1; 0: one per core)");
  add("kernel", po::value(&out->kernel)->value_name("ID"), "kernel plugin (default: the best)");
  if (!parse_options(args, options)) return false;
  check(*out);
  return true;
}

// What prepared lines without a description are: their columns are the model's.
Dataset described_by(const ModelDescription& model, const std::string& name) {
  Dataset set;
  set.name = name;
  for (int64_t i = 0; i < model.dense_inputs; ++i) set.dense.push_back(cat("I", i + 1));
  for (const ModelFeature& f : model.features) set.columns.push_back({f.name, f.ids, "sum"});
  return set;
}

// The next lines of a file without a description, at most so many.
ExamplesPtr next_lines(data::LineReader& lines, const Dataset& set, int64_t most) {
  data::Examples examples(set.dense.size(), set.columns);
  for (std::string_view line; examples.size() < most && lines.next(line);)
    data::add_prepared_line(line, set.name, lines.line(), examples);
  return data::finish(std::move(examples));
}

Dataset read_prepared_file(const std::string& path, const ModelDescription& model) {
  Dataset set = described_by(model, path);
  data::LineReader lines(path);
  set.train.kept = next_lines(lines, set, std::numeric_limits<int64_t>::max());
  set.test.kept = std::make_shared<const data::Examples>(set.dense.size(), set.columns);
  return set;
}

constexpr const char* kStandardInput = "standard input";

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
      sentence.replace(at, path().size(), kStandardInput);
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

// Nothing says how the data is read but the model.
bool is_bare(const PredictArguments& a) { return a.reader.empty() && a.config.empty(); }

Dataset read_data(const PredictArguments& a, Config config, const Runtime& runtime, const ModelDescription& model) {
  std::error_code ignored;
  const bool pattern = a.data.find_first_of("*?[") != std::string::npos;
  if (!a.data.empty() && !pattern && !std::filesystem::exists(a.data, ignored))
    fail(Code::kNotFound, "--data: there is no file or directory ", a.data);
  const bool bare = is_bare(a);
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

std::unique_ptr<Predictor> open_model(const Runtime& runtime, const PredictArguments& a) {
  const PredictorOptions options{a.kernel};
  if (a.retrieval.top_k > 0) return retrieval::open_retriever(runtime, a.model, options, a.retrieval);
  InferenceModel model = open_packed_model(a.model);
  if (!a.vectors.empty()) retrieval::add_output(model, a.vectors);
  return make_predictor(runtime, std::move(model), options);
}
// Something else than a score a sample is wanted.
bool wants_items(const PredictArguments& a) { return !a.vectors.empty() || a.retrieval.top_k > 0; }

// What answers.
struct Session {
  explicit Session(const PredictArguments& a)
      : config(a.config.empty() ? Config{} : load_config(a.config, a.overrides)),
        runtime({config.plugins.path, config.plugins.require, true, a.threads}),
        predictor(open_model(runtime, a)) {}
  const ModelDescription& model() const { return predictor->model(); }

  Config config;
  PluginWatch watch;
  Runtime runtime;
  std::unique_ptr<Predictor> predictor;
};

// Scores of samples, written as they come, and how good they are.
class Scores {
 public:
  // Data that do not fit are refused before anything is written. `streamed`: no sample is kept. `rows`: of all samples,
  // for progress; 0: nobody knows.
  Scores(const PredictArguments& a, Predictor& predictor, const Dataset& set, bool streamed, int64_t rows)
      : predictor_(predictor),
        set_(set),
        batch_(a.batch),
        fits_(predictor.model(), set.columns, static_cast<int64_t>(set.dense.size())),
        writer_(a.output, a.format == "jsonl", set.labelled),
        // Scores on a terminal are their own progress.
        progress_({.steps = rows, .log_every = 0, .terminal = rows > 0 && stderr_is_terminal() && !a.output.empty()}),
        metrics_(metrics_of(predictor.model(), streamed)) {}

  void add(const Samples& samples) {
    const auto sink = [&](std::span<const float> scores, const Tensor& labels, const Batch& batch) {
      for (size_t i = 0; i < scores.size(); ++i) writer_.add(labels.data<float>()[i], scores[i]);
      if (set_.labelled) add_scores(metrics_, predictor_.model(), scores, labels, batch);
      done_ += static_cast<int64_t>(scores.size());
      progress_.report(done_, done_);
    };
    try {
      predict_all(predictor_, set_, samples, batch_, sink);
    } catch (const Error& e) {  // which counts the samples of one batch
      fail(e.code(), "in the batch that begins at row ", done_, ": ", e.what());
    }
  }
  void finish() {
    progress_.finish();
    writer_.finish();
    if (set_.labelled) std::fprintf(stderr, "%s\n", metrics_text(metrics_.values(), 6).c_str());
  }

 private:
  Predictor& predictor_;
  const Dataset& set_;
  int64_t batch_;
  BatchInput fits_;
  ScoreWriter writer_;
  Progress progress_;
  MetricSet metrics_;
  int64_t done_ = 0;
};

// Prepared lines without a description, of any number: none is kept.
void predict_lines(const PredictArguments& a, Session& session) {
  const Dataset set = described_by(session.model(), kStandardInput);
  data::LineReader lines(STDIN_FILENO, kStandardInput);
  Scores scores(a, *session.predictor, set, true, 0);
  for (Samples some = next_lines(lines, set, a.batch); some.size() > 0; some = next_lines(lines, set, a.batch)) {
    if (session.model().bounds_check == BoundsCheckMode::kFatal && !some.kept->bad_id().empty())
      fail(Code::kInvalidArgument, some.kept->bad_id());
    scores.add(some);
  }
  scores.finish();
}

void write_items(const PredictArguments& a, Session& session, const Dataset& data, const std::vector<Samples>& parts) {
  std::ofstream file(a.output, std::ios::binary);
  std::ostream& out = a.output.empty() ? std::cout : file;
  predict_items(*session.predictor, data, parts, a.batch, a.format == "jsonl", out);
  if (!out.flush()) fail(Code::kUnavailable, "cannot write to ", a.output.empty() ? "standard output" : a.output);
}

void predict_data(const PredictArguments& a, Session& session) {
  const Dataset data = read_data(a, session.config, session.runtime, session.model());
  if (session.model().bounds_check == BoundsCheckMode::kFatal) data.require_known_ids();
  std::vector<Samples> parts;
  int64_t rows = 0;
  if (a.part != "test") parts.push_back(data.train), rows += data.train_rows();
  if (a.part != "train") parts.push_back(data.test), rows += data.test_rows();
  if (a.part != "all" && rows == 0) throw UsageError(cat("--part ", a.part, ": there are no such rows in ", data.name));
  if (!a.vectors.empty()) return predict_vectors(*session.predictor, data, parts, a.batch, a.output);
  if (wants_items(a)) return write_items(a, session, data, parts);
  Scores scores(a, *session.predictor, data, data.train.streamed || data.test.streamed, rows);
  for (const Samples& part : parts) scores.add(part);
  scores.finish();
}

}  // namespace

int predict_command(const std::vector<std::string>& args) {
  PredictArguments a;
  if (!parse_predict_arguments(args, &a)) return 0;
  Session session(a);
  const DataConfig& data = session.config.data;
  check_outputs({{"--output", a.output}}, {{a.config, a.data, data.path, data.test_path}, {a.model}});
  if (a.data != "-") {
    predict_data(a, session);
  } else if (is_bare(a) && session.model().encoding.empty() && !wants_items(a)) {
    predict_lines(a, session);
  } else {
    const StandardInput input;
    a.data = input.path();
    try {
      predict_data(a, session);
    } catch (const Error& e) {
      fail(e.code(), input.named(e.what()));
    }
  }
  return 0;
}

}  // namespace tessera::cli
