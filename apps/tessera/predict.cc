// tessera predict: writes scores for files of samples.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "command.h"
#include "data/arriving_rows.h"
#include "data/history_reader.h"
#include "inspect_checkpoint.h"
#include "options.h"
#include "outputs.h"
#include "plugin_watch.h"
#include "predict/explain.h"
#include "predict/heads.h"
#include "predict/importance.h"
#include "predict/items.h"
#include "predict/score_writer.h"
#include "recalibrate.h"
#include "retrieval/retriever.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/predictor.h"
#include "tessera/runtime.h"
#include "tessera/train_job.h"
#include "train/progress.h"
#include "train/report_text.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct PredictArguments {
  std::string model, data, reader, config, output, format = "csv", part = "all", kernel = "auto";
  std::string dense_precision;
  std::vector<std::string> overrides, heads;
  int64_t batch = 1024;
  int threads = 1;
  std::string vectors;
  retrieval::RetrieverOptions retrieval;
  int64_t importance = 0;  // shuffles of each column; 0: scores are wanted
  int64_t explain = 0;     // rows to explain; 0: scores are wanted
  std::string metric;
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
  if (!a.vectors.empty() && a.retrieval.top_k > 0) throw UsageError("--vectors LAYER cannot be combined with --top-k");
  if (!a.vectors.empty() && a.output.empty())
    throw UsageError("--vectors LAYER needs --output FILE: vectors are written to a file, not to standard output");
  if (!a.heads.empty() && (a.retrieval.top_k > 0 || !a.vectors.empty()))
    throw UsageError("--head selects scores: leave it out with --top-k and --vectors");
  if (a.importance < 0 || a.importance > 1000) throw UsageError("--importance takes 1 to 1000 shuffles of each column");
  if (a.importance > 0 && (a.retrieval.top_k > 0 || !a.vectors.empty() || a.data == "-"))
    throw UsageError("--importance cannot be combined with --top-k, --vectors and --data -");
  if (a.explain < 0 || a.explain > 10000) throw UsageError("--explain takes 1 to 10000 rows");
  if (a.explain > 0 && (a.importance > 0 || a.retrieval.top_k > 0 || !a.vectors.empty() || a.data == "-"))
    throw UsageError("--explain cannot be combined with --importance, --top-k, --vectors and --data -");
  if (a.importance == 0 && !a.metric.empty()) throw UsageError("--metric has no effect without --importance");
  if (a.batch < 1 || a.batch > 1 << 20) throw UsageError("--batch takes 1 to 1048576 samples");
  if (a.threads < 0 || a.threads > 1024) throw UsageError("--threads takes 0 (one per core) to 1024");
}

bool parse_predict_arguments(const std::vector<std::string>& args, PredictArguments* out) {
  Options options("predict", "--model DIR --data FILE [OPTIONS]");
  auto add = options.add_options();
  add("model", po::value(&out->model)->value_name("DIR"),
      "directory of a packed model, or of checkpoints of tessera train");
  add("data", po::value(&out->data)->value_name("FILE"),
      "data as the model was trained on (file, directory or pattern); or a file in the prepared format, with the "
      "model's features in its order; or data for --reader. - is standard input, which csv and tsv score as it comes");
  add("reader", po::value(&out->reader)->value_name("NAME"), "reader of the data, such as csv (docs/data.md)");
  add("config", po::value(&out->config)->value_name("FILE"), "read the [data] of this job; --data replaces its path");
  add("set", po::value(&out->overrides)->value_name("KEY=VALUE"), "change a key of the config; may be repeated");
  add("part", po::value(&out->part)->value_name("PART"), "part of the data: train, test or all rows (docs/models.md)");
  add("output", po::value(&out->output)->value_name("FILE"), "write to this file; - is standard output (default)");
  add("head", po::value(&out->heads)->value_name("NAME"),
      "print only the scores of this head; may be repeated (default: all heads)");
  add("format", po::value(&out->format)->value_name("FORMAT"),
      "csv (columns row, label if there are labels, and score, or a column for each of several heads) or jsonl");
  add("vectors", po::value(&out->vectors)->value_name("LAYER"),
      "write the values of a layer instead of scores: as safetensors, which --items takes, or, by the ending of "
      "--output, as .npy, .fvecs or .csv");
  add("top-k", po::value(&out->retrieval.top_k)->value_name("K"),
      "print the K items whose vectors have the largest dot products with --query's values, instead of scores");
  add("items", po::value(&out->retrieval.items)->value_name("TABLE|LAYER|FILE"),
      "items for --top-k: a table of the model, a layer that makes items of its rows, or a file that --vectors has "
      "written");
  add("query", po::value(&out->retrieval.query)->value_name("LAYER"),
      "query of --top-k (default: the input of the first head); of a sequence, its last row");
  add("exclude", po::value(&out->retrieval.exclude)->value_name("FEATURE"),
      "leave the ids of this feature out of the items of --top-k, such as those that a user has had");
  add("index", po::value(&out->retrieval.index)->value_name("NAME"),
      "find most of the items of --top-k by this index, such as hnsw?ef_search=200, instead of all by comparing each");
  add("least-recall", po::value(&out->retrieval.least_recall)->value_name("SHARE"),
      "refuse an --index that finds less than this share of the best items (0 to 1)");
  add("importance", po::value(&out->importance)->value_name("N"),
      "print for each column how much worse the answers get if its values are shuffled, N times, instead of scores");
  add("explain", po::value(&out->explain)->value_name("N"),
      "print for each of the first N rows which columns moved its score, instead of scores");
  add("metric", po::value(&out->metric)->value_name("NAME"),
      "metric of --importance, such as logloss (default: the first that is printed with scores)");
  add("batch", po::value(&out->batch)->value_name("N"), "samples that are predicted together (default: 1024)");
  add("threads", po::value(&out->threads)->value_name("N"), "threads for one batch (default: 1; 0: one per core)");
  add("kernel", po::value(&out->kernel)->value_name("ID"), "kernel plugin (default: the best)");
  add("dense-precision", po::value(&out->dense_precision)->value_name("TYPE"),
      "type of the dense layers' products: float32, bfloat16 or auto (default: int8 if the model was packed so, "
      "otherwise float32)");
  const auto given = parse_options(args, options);
  if (!given) return false;
  if (given->contains("importance") && out->importance == 0)
    throw UsageError("--importance 0 shuffles nothing: it takes 1 to 1000 shuffles of each column");
  if (given->contains("explain") && out->explain == 0)
    throw UsageError("--explain 0 explains nothing: name 1 to 10000 rows");
  if (out->output == "-") out->output.clear();
  check(*out);
  return true;
}

// Lines in the prepared format that come without a description: labels in the order of the model's heads, its dense
// inputs, and its features.
struct Lines {
  std::string reader, encoding;
};
Lines lines_of(const InferenceModel& model) {
  std::vector<std::string> labels;
  bool binary = true;
  for (const HeadSpec& head : model.graph.heads) {
    if (std::find(labels.begin(), labels.end(), head.label) == labels.end()) labels.push_back(head.label);
    binary = binary && head.loss == kOwnLoss;
  }
  binary = binary && labels.size() == 1;
  const auto dense = model.description.dense_inputs;
  const std::vector<ModelFeature>& features = model.description.features;
  json columns = json::array();
  const auto add = [&](const std::string& name, const char* as, const char* field, int64_t i) -> json& {
    return columns.emplace_back(json{{"name", name}, {"column", str_cat(field, i)}, {"as", as}, {"table", name}});
  };
  for (int64_t i = 0; i < std::ssize(labels); ++i)
    add(labels[static_cast<size_t>(i)], "label", "label", i + 1)["real"] = !binary;
  for (int64_t i = 1; i <= dense; ++i) add(str_cat("I", i), "dense", "dense", i);
  for (int64_t i = 0; i < std::ssize(features); ++i) {
    const ModelFeature& f = features[static_cast<size_t>(i)];
    add(f.name, "ids", "column", i + 1)["rows"] = f.ids;
  }
  const std::string reader = str_cat("prepared?labels=", labels.size(), "&dense=", dense, "&columns=", features.size(),
                                     "&binary=", binary ? "true" : "false");
  return {reader, json{{"reader", reader}, {"columns", columns}}.dump()};
}

constexpr const char* kStandardInput = "standard input";

// Standard input as a file without a name, which readers may read several times; it is deleted with its owner.
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

  std::string path() const { return str_cat("/proc/self/fd/", ::fileno(file_)); }
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

// The reader of the model's own data, if that was a reader plugin.
std::string own_reader(const ModelDescription& model) {
  if (model.encoding.empty()) return "prepared";
  return ColumnEncoding(model.encoding).reader();
}

// The reader of the model's own data for files of another kind: histories(parquet) for those of histories(csv).
std::string reader_for(const Runtime& runtime, const std::string& reader, const std::string& path) {
  const std::string inner = parse_component_name(reader).inner;
  const size_t at = reader.rfind("(" + inner + ")");
  if (inner.empty() || inner.ends_with(')') || at == std::string::npos) return reader;
  DataConfig data;
  data.reader.clear();
  data.path = path;
  std::string opens;
  try {
    opens = reader_of(runtime, data);
  } catch (const Error&) {  // the name does not tell
    return reader;
  }
  return parse_component_name(opens).id == parse_component_name(inner).id
             ? reader
             : str_cat(reader.substr(0, at), "(", opens, ")");
}

// Items are asked for what comes next, so a user's last event is one of the history and not the one to predict.
std::string reader_of_requests(std::string reader) {
  constexpr std::string_view kUsers = "samples=\"users\"", kRequests = "samples=\"requests\"";
  if (const size_t at = reader.find(kUsers); at != std::string::npos) reader.replace(at, kUsers.size(), kRequests);
  return reader;
}

std::unique_ptr<Predictor> predictor_of(const Runtime& runtime, InferenceModel model, const PredictArguments& a) {
  const auto open = [&](InferenceModel of) {
    return make_predictor(runtime, std::move(of), {a.kernel, a.dense_precision});
  };
  if (a.retrieval.top_k > 0) {
    retrieval::RetrieverOptions items = a.retrieval;
    items.tell = [](const retrieval::IndexFigures& f) { std::cerr << fitted(text_of(f), STDERR_FILENO); };
    return retrieval::make_retriever(runtime, std::move(model), open, items);
  }
  if (!a.vectors.empty()) retrieval::answer_with(model, a.vectors);
  return open(std::move(model));
}
// True if the user wants something other than a score per sample.
bool wants_items(const PredictArguments& a) { return !a.vectors.empty() || a.retrieval.top_k > 0; }

// A packed model, or the newest checkpoint in a directory.
InferenceModel open_model(const std::string& path) {
  if (!is_checkpoint(path)) return open_packed_model(path);
  FloatModel out = open_float_model(path);
  for (const std::string& assumed : out.assumptions) std::cerr << path << ": " << assumed << '\n';
  return std::move(out.model);
}

// The model that answers, and what is asked of it.
struct Session {
  explicit Session(const PredictArguments& a)
      : config(a.config.empty() ? Config{} : load_config(a.config, a.overrides)),
        runtime({config.plugins.path, config.plugins.require, true, a.threads}) {
    InferenceModel opened = open_model(a.model);
    lines = lines_of(opened);
    predictor = predictor_of(runtime, std::move(opened), a);
    if (const std::string& why = model().why_float32; !why.empty())
      std::fprintf(stderr, "dense products are in float32: %s\n", why.c_str());
    asked = asked_outputs(model(), a.heads);
  }
  const ModelDescription& model() const { return predictor->model(); }

  Config config;
  PluginWatch watch;
  Runtime runtime;
  Lines lines;
  std::unique_ptr<Predictor> predictor;
  std::vector<size_t> asked;  // indices of the model's outputs to compute
};

// True if only the model says how the data is read.
bool is_bare(const PredictArguments& a) { return a.reader.empty() && a.config.empty(); }

Dataset read_data(const PredictArguments& a, const Session& session) {
  const ModelDescription& model = session.model();
  Config config = session.config;
  std::error_code ignored;
  const bool pattern = a.data.find_first_of("*?[") != std::string::npos;
  if (!a.data.empty() && !pattern && !std::filesystem::exists(a.data, ignored))
    fail(Code::kNotFound, "--data: there is no file or directory ", a.data);
  const bool bare = is_bare(a);
  DataConfig& data = config.data;
  if (bare && model.encoding.empty() && std::filesystem::is_regular_file(a.data, ignored)) {
    data = {.reader = session.lines.reader, .path = a.data, .test_fraction = 0};
    Dataset set = read_unlabelled(session.runtime, config, session.lines.encoding);
    set.name = a.data;
    return set;
  }
  if (a.config.empty()) {
    data.reader = bare ? own_reader(model) : a.reader;
    if (bare && a.retrieval.top_k > 0) data.reader = reader_of_requests(data.reader);
    data.test_fraction = 0;
    for (const ModelFeature& f : model.features) data.rows.push_back(f.ids);  // needed by readers that hash
  } else if (!a.reader.empty()) {
    data.reader = a.reader;
  }
  if (a.part == "all" && test_file(data).empty()) read_undivided(config);
  data.reader = data::ArrivingRows::file_reader(session.runtime, data.reader);
  if (bare) data.reader = reader_for(session.runtime, data.reader, a.data);
  if (!a.data.empty()) data.path = a.data;
  if (!bare) data::check_same_histories(own_reader(model), config);
  const std::string encoding = config.columns.empty() ? looked_up_columns(model) : model.encoding;
  try {
    return read_unlabelled(session.runtime, config, encoding);
  } catch (const Error& e) {
    const std::string needed = needed_columns(model);
    if (e.code() != Code::kNotFound || needed.empty()) throw;  // the files have other columns
    const std::string own = own_reader(model), inner = own.empty() ? "" : parse_component_name(own).inner;
    const bool stack = !a.reader.empty() && !inner.empty() &&
                       a.reader.find('(') == std::string::npos;  // the reader makes columns of others
    fail(e.code(), e.what(), "; the model needs ", needed,
         stack ? str_cat(": its data were read by ", own, ", so name --reader '",
                         own.substr(0, own.rfind("(" + inner + ")")), "(", a.reader, ")'")
               : "");
  }
}

// Writes scores of samples as they come, and measures their quality.
class Scores {
 public:
  // Data that do not fit are refused before anything is written. `streamed`: samples are not kept. `rows`: number of
  // samples, for progress; 0 if unknown.
  Scores(const PredictArguments& a, const Session& session, const Dataset& set, bool streamed, int64_t rows)
      : session_(session),
        predictor_(*session.predictor),
        set_(set),
        batch_(a.batch),
        fits_(session.model(), set.columns, static_cast<int64_t>(set.dense.size())),
        heads_(asked_heads(session.model(), session.asked, set)),
        writer_(a.output, a.format == "jsonl", heads_),
        // Scores on a terminal show the progress themselves.
        progress_({.steps = rows, .log_every = 0, .terminal = rows > 0 && stderr_is_terminal() && !a.output.empty()}),
        judge_(session.model(), heads_, streamed),
        unknown_(session.model().encoding) {}

  void add(const Samples& samples) {
    const auto sink = [&](const std::vector<std::vector<float>>& values, const Batch& batch) {
      writer_.add(values, batch);
      judge_.add(values, batch);
      unknown_.add(batch.sparse);
      done_ += batch.labels.numel();
      progress_.report(done_, done_);
    };
    try {
      predict_all(predictor_, set_, samples, batch_, widths_of(predictor_.model(), heads_), sink);
    } catch (const Error& e) {  // its message counts samples within one batch
      fail(e.code(), "in the batch that begins at row ", done_, ": ", e.what());
    }
  }
  void flush() { writer_.flush(); }
  // `which` says which of the data's rows these are; "" if there is only one kind.
  void finish(const std::string& which = "") {
    progress_.finish();
    flush();
    for (const UnknownIds& ids : unknown_.counts()) {
      if (ids.are_many()) std::fprintf(stderr, "%s\n", unknown_ids_text(set_.name, ids).c_str());
    }
    const MetricValues metrics = judge_.values();
    if (!metrics.values.empty())
      std::fprintf(stderr, "%s",
                   fitted(metrics_text(metrics, 6, str_cat(" of ", set_.name, which)), STDERR_FILENO).c_str());
    if (const std::string note = no_auc_note(metrics, set_, session_.model()); !note.empty())
      std::cerr << wrapped(str_cat("tessera predict: warning: ", note));
  }

 private:
  const Session& session_;
  Predictor& predictor_;
  const Dataset& set_;
  int64_t batch_;
  BatchInput fits_;
  const std::vector<AskedHead> heads_;
  ScoreWriter writer_;
  Progress progress_;
  HeadJudge judge_;
  UnknownIdCounter unknown_;
  int64_t done_ = 0;
};

// The reader and encoding for standard input whose rows arrive over time. No reader: the job needs all data first.
Lines pipe_lines(const PredictArguments& a, const Session& session) {
  if (is_bare(a) && session.model().encoding.empty() && !wants_items(a)) return session.lines;
  if (!a.config.empty() || a.part == "test" || wants_items(a)) return {};
  const std::string reader =
      data::ArrivingRows::file_reader(session.runtime, is_bare(a) ? own_reader(session.model()) : a.reader);
  if (!data::ArrivingRows::reads(session.runtime, reader, TSR_READER_PIPE)) return {};
  return {reader, looked_up_columns(session.model())};
}

// Rows of standard input, of any number: each batch has the rows that have arrived.
void predict_pipe(const PredictArguments& a, Session& session, const Lines& lines) {
  constexpr double kWait = 1;  // seconds per call, so that a plugin that takes long is reported
  Config config;
  config.data.reader = lines.reader;
  config.data.path = "-";
  data::ArrivingRows rows(session.runtime, config, lines.encoding, TSR_READER_PIPE);
  if (session.model().bounds_check == BoundsCheckMode::kFatal) rows.require_known_ids();
  rows.follow("");
  Dataset set = rows.dataset();
  set.name = kStandardInput;
  Scores scores(a, session, set, true, 0);
  for (bool last = false; !last;) {
    data::Examples some = rows.form();
    std::vector<double> times;
    last = rows.take(a.batch, kWait, some, times).last;
    if (some.size() == 0) continue;
    scores.add(std::make_shared<const data::Examples>(std::move(some)));
    scores.flush();
  }
  scores.finish();
}

void write_items(const PredictArguments& a, Session& session, const Dataset& data, const std::vector<Samples>& parts) {
  std::ofstream file(a.output, std::ios::binary);
  std::ostream& out = a.output.empty() ? std::cout : file;
  predict_items(*session.predictor, data, parts, a.batch, a.format == "jsonl", out);
  if (!out.flush()) fail(Code::kUnavailable, "cannot write to ", a.output.empty() ? "standard output" : a.output);
}

// Writes what --importance or --explain asks for.
void write_columns(const PredictArguments& a, Session& session, const Dataset& data,
                   const std::vector<Samples>& parts) {
  std::ofstream file(a.output, std::ios::binary);
  std::ostream& out = a.output.empty() ? std::cout : file;
  const std::vector<AskedHead> heads = asked_heads(session.model(), session.asked, data);
  const bool as_json = a.format == "jsonl";
  if (a.explain > 0) {
    print_explanations(*session.predictor, data, parts, heads, {.rows = a.explain, .as_json = as_json}, out);
  } else {
    print_importance(*session.predictor, data, parts, heads,
                     {.repeats = a.importance, .batch = a.batch, .metric = a.metric, .as_json = as_json}, out);
  }
  if (!out.flush()) fail(Code::kUnavailable, "cannot write to ", a.output.empty() ? "standard output" : a.output);
}

// `name` is what sentences call the data; if empty, its own name.
void predict_data(const PredictArguments& a, Session& session, const std::string& name = "") {
  Dataset data = read_data(a, session);
  if (!name.empty()) data.name = name;
  if (session.model().bounds_check == BoundsCheckMode::kFatal) data.require_known_ids();
  std::vector<Samples> parts;
  int64_t rows = 0;
  if (a.part != "test") parts.push_back(data.train), rows += data.train_rows();
  const int64_t validation = a.part == "all" ? data.validation.size() : 0;  // rows that the reader keeps for it
  if (validation > 0) parts.push_back(data.validation), rows += validation;
  if (a.part != "train") parts.push_back(data.test), rows += data.test_rows();
  if (a.part != "all" && rows == 0)
    throw UsageError(str_cat("--part ", a.part, ": there are no such rows in ", data.name));
  if (a.part == "test") {
    const std::string other =
        other_test_part(session.model().trained_on, session.config, without_validation(session.config, data));
    if (!other.empty()) std::cerr << wrapped(str_cat("tessera predict: warning: ", other));
  }
  if (!a.vectors.empty()) return predict_vectors(*session.predictor, data, parts, a.batch, a.output);
  if (wants_items(a)) return write_items(a, session, data, parts);
  if (a.importance > 0 || a.explain > 0) return write_columns(a, session, data, parts);
  Scores scores(a, session, data, data.train.streamed || data.test.streamed, rows);
  for (const Samples& part : parts) scores.add(part);
  const bool two_parts = data.train_rows() > 0 && data.test_rows() > 0;
  scores.finish(!two_parts          ? ""
                : a.part == "train" ? ", without its test part"
                : a.part == "test"  ? ", its test part"
                                    : str_cat(", all rows: ", data.train_rows(), " that a job of this config trains on",
                                             validation > 0 ? str_cat(", ", validation, " for its validation") : "",
                                              " and ", data.test_rows(), " of its test part (--part test)"));
}

}  // namespace

int predict_command(const std::vector<std::string>& args) {
  PredictArguments a;
  if (!parse_predict_arguments(args, &a)) return 0;
  Session session(a);
  const DataConfig& data = session.config.data;
  const std::string input = a.data == "-" ? "/dev/stdin" : a.data;  // which may be a file
  check_outputs({{"--output", a.output}}, {{a.config, input, data.path, test_file(data)}, {a.model}});
  if (a.data != "-") {
    predict_data(a, session);
  } else if (const Lines lines = pipe_lines(a, session); !lines.reader.empty()) {
    predict_pipe(a, session, lines);
  } else {
    const StandardInput input;
    a.data = input.path();
    try {
      predict_data(a, session, kStandardInput);
    } catch (const Error& e) {
      fail(e.code(), input.named(e.what()));
    }
  }
  return 0;
}

}  // namespace tessera::cli
