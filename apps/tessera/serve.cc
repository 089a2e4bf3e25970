// tessera serve: answers requests over HTTP with a packed model.
#include "serve/endpoint.h"
#include "serve/following.h"
#include "serve/handler.h"
#include "serve/histories.h"
#include "serve/server.h"

#include <sys/resource.h>

#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "command.h"
#include "options.h"
#include "plugin_watch.h"
#include "retrieval/retriever.h"
#include "serve/shards.h"
#include "serve/token.h"
#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/layer_graph.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using namespace tessera::serve;

constexpr double kMostMib = 1 << 20;

struct NamedModel {
  std::string name, directory;  // empty name: the name in the packed model
};

struct ServeArguments {
  std::vector<NamedModel> models, followed;
  std::vector<std::string> endpoints, plugin_path;
  std::string token;  // empty: every request is answered
  Level log_level = Level::kInfo;
  ServerOptions server;
  ServiceOptions service;
  BatcherOptions batcher;
  ShardOptions shards;
  retrieval::RetrieverOptions retrieval;
  HistoriesOptions histories;
};

// Values of options that are read after all options are known.
struct GivenTexts {
  std::vector<std::string> models, followed;
  std::string name, token_file, plan;
};

Level level_of(const std::string& name) {
  const std::pair<const char*, Level> levels[] = {
      {"error", Level::kError}, {"warning", Level::kWarning}, {"info", Level::kInfo}, {"debug", Level::kDebug}};
  for (const auto& [known, level] : levels) {
    if (name == known) return level;
  }
  throw UsageError("--log-level takes error, warning, info or debug, not \"" + name + "\"");
}

// The value of an option with a number, whose default is `start`.
template <class Number>
po::typed_value<Number>* number(Number start) {
  return po::value<Number>()->value_name("N")->default_value(start);
}

template <class Number>
Number in_range(const char* option, Number value, double least, double most) {
  if (const auto given = static_cast<double>(value); given >= least && given <= most) return value;
  std::ostringstream range;
  range.precision(15);
  range << "--" << option << " takes a number from " << least << " to " << most << ", not " << value;
  throw UsageError(range.str());
}

// Declares an option with a number from `least` to `most` in the unit of `target`, which has its default and gets it.
template <class Target>
void add_number(Options& options, const char* name, Target& target, std::pair<double, double> range, const char* help) {
  const auto take = [&target, name, range](auto given) {
    target = static_cast<Target>(in_range(name, given, range.first, range.second));
  };
  if constexpr (std::is_floating_point_v<Target>) {
    options.add_options()(name, number(target)->notifier(take), help);
  } else if constexpr (std::is_integral_v<Target>) {
    options.add_options()(name, number(static_cast<int64_t>(target))->notifier(take), help);
  } else {
    options.add_options()(name, number(static_cast<int64_t>(target.count()))->notifier(take), help);
  }
}

void add_limits(ServeArguments& a, Options& options) {
  constexpr double kDayMs = 86400e3, kMost = 1 << 20;
  add_number(options, "max-batch", a.batcher.max_batch, {1, kMost},
             "largest number of samples that are predicted together");
  add_number(options, "max-wait-us", a.batcher.max_wait, {0, 1e7},
             "microseconds that a request waits for others; 0: only while all workers are busy");
  add_number(options, "max-queue", a.batcher.max_queue, {1, kMost},
             "number of requests that may wait; others get status 503");
  add_number(options, "max-samples", a.service.max_samples, {1, kMost},
             "samples of one request; larger ones get status 400");
  add_number(options, "deadline-ms", a.service.deadline, {1, kDayMs},
             "milliseconds for an answer; later ones get status 503");
  add_number(options, "workers", a.batcher.workers, {0, 1024}, "number of threads that predict; 0: half the cores");
  add_number(options, "io-threads", a.server.threads, {0, 1024},
             "number of threads that read and write; 0: half the cores");
  const auto take_mib = [&a](int64_t mib) {
    a.server.max_body = static_cast<size_t>(in_range("max-body-mib", mib, 1, 1024)) << 20;
    a.server.max_bodies = std::max(a.server.max_bodies, 4 * a.server.max_body);
  };
  options.add_options()("max-body-mib", number(static_cast<int64_t>(a.server.max_body >> 20))->notifier(take_mib),
                        "MiB of one request; larger ones get status 413");
  add_number(options, "max-connections", a.server.max_connections, {1, kMost},
             "number of open connections; others get status 503");
  add_number(options, "read-timeout-ms", a.server.read_timeout, {1, kDayMs},
             "milliseconds for a request to arrive; later ones get status 408");
  add_number(options, "idle-timeout-ms", a.server.idle_timeout, {1, kDayMs},
             "milliseconds between requests of a connection");
}

Options options_of(ServeArguments& a, GivenTexts& given) {
  Options options(
      "serve", "--model [NAME=]DIR [OPTIONS]\n--follow [NAME=]DIR [OPTIONS]",
      "Send it rows, POST /v1/score with {\"rows\": [{\"user\": \"u3\", \"age\": 31}]}, or use the Open Inference "
      "Protocol. docs/serving.md has more.");
  auto add = options.add_options();
  add("model", po::value(&given.models)->value_name("[NAME=]DIR"),
      "directory of a packed model, made by tessera quantize, and its name for clients; may be repeated, also with "
      "one NAME for several versions");
  add("follow", po::value(&given.followed)->value_name("[NAME=]DIR"),
      "serve the newest model of tessera train --publish DIR, and take over each later one; may be repeated");
  add("name", po::value(&given.name)->value_name("NAME"),
      "name of a single model for clients (default: as it was packed)");
  add("top-k", po::value(&a.retrieval.top_k)->value_name("K"),
      "answer with the K items whose vectors have the largest dot products with --query's values");
  add("items", po::value(&a.retrieval.items)->value_name("TABLE|LAYER|FILE"),
      "items for --top-k: a table of the model, a layer that makes items of its rows, or a file of tessera predict "
      "--vectors");
  add("query", po::value(&a.retrieval.query)->value_name("LAYER"),
      "query of --top-k (default: the input of the first head); of a sequence, its last row");
  add("exclude", po::value(&a.retrieval.exclude)->value_name("FEATURE"),
      "leave the ids of this feature out of a sample's items, such as those that a user has had");
  add("index", po::value(&a.retrieval.index)->value_name("NAME"),
      "find most of the items of --top-k by this index, such as hnsw?ef_search=200, instead of all by comparing each");
  add("least-recall", po::value(&a.retrieval.least_recall)->value_name("SHARE"),
      "refuse an --index that finds less than this share of the best items (0 to 1)");
  add("histories", po::value(&a.histories.path)->value_name("PATH"),
      "keep the histories of users that [history] makes, from the events in these files, and from those that POST "
      "/v1/events adds; -: begin without events");
  add("histories-reader", po::value(&a.histories.reader)->value_name("NAME"),
      "reader of --histories, such as growing(csv), whose events go on arriving (default: that of the training data)");
  add_number(options, "histories-mib", a.histories.most_mib, {1, kMostMib},
             "MiB for --histories; beyond, the users whose newest event came first are forgotten");
  add("host", po::value(&a.server.host)->value_name("ADDRESS")->default_value(a.server.host),
      "address to listen on; 0.0.0.0: all");
  add_number(options, "port", a.server.port, {0, 65535}, "port to listen on; 0: a free one, which is printed");
  add("endpoint", po::value(&a.endpoints)->value_name("ID[?OPTION=VALUE&...]"),
      "also answer through this endpoint plugin, as in grpc?port=8001; may be repeated");
  add("tls-cert", po::value(&a.server.tls_cert)->value_name("FILE"), "certificate and chain for HTTPS, as PEM");
  add("tls-key", po::value(&a.server.tls_key)->value_name("FILE"), "key of the certificate, as PEM");
  add("token-file", po::value(&given.token_file)->value_name("FILE"),
      "file whose first line is a token that every request must have");
  add_limits(a, options);
  const auto take_level = [&a](const std::string& name) { a.log_level = level_of(name); };
  add("log-level", po::value<std::string>()->value_name("LEVEL")->default_value("info")->notifier(take_level),
      "error, warning, info or debug: JSON lines on standard error");
  add("kernel", po::value(&a.shards.kernel)->value_name("ID")->default_value("auto"), "kernel plugin");
  add("dense-precision", po::value(&a.shards.dense_precision)->value_name("TYPE"),
      "type of the dense layers' products: float32, bfloat16 or auto (default: int8 if the model was packed so, "
      "otherwise float32)");
  add("plugin-path", po::value(&a.plugin_path)->value_name("DIR"),
      "directory that is searched for plugins first; may be repeated");
  add("plan", po::value(&given.plan)->value_name("FILE"), "for several ranks: plan of the tables (default: a new one)");
  add("backend", po::value(&a.shards.backend)->value_name("ID")->default_value("auto"), "for several ranks: transport");
  add_number(options, "rank-timeout-s", a.shards.timeout_s, {0.1, 3600},
             "for several ranks: seconds after which a silent rank is lost");
  return options;
}

void check(const ServeArguments& a, const GivenTexts& given) {
  const size_t models = given.models.size() + given.followed.size();
  if (models == 0) throw UsageError("--model DIR or --follow DIR is needed: see tessera serve --help");
  if (models > 1 && !given.name.empty())
    throw UsageError("--name is for one model: with several, give each its name as --model NAME=DIR");
  if (models > 1 && a.shards.where.world_size > 1)
    throw UsageError("several ranks serve one model: start a separate job for each model");
  if (models > 1 && !a.histories.path.empty())
    throw UsageError("--histories is for one model: give one --model DIR or --follow DIR");
  if (a.histories.path.empty() && !a.histories.reader.empty())
    throw UsageError("--histories-reader has no effect without --histories PATH");
  if (a.histories.path == HistoriesOptions::kNoEvents && !a.histories.reader.empty())
    throw UsageError("--histories-reader has no effect with --histories -, which begins without events");
  retrieval::check(a.retrieval);
  if (a.retrieval.top_k > 0 && models > 1)
    throw UsageError("--top-k is for one model: give one --model DIR or --follow DIR");
  std::error_code ignored;
  if (a.retrieval.top_k > 0 && !given.followed.empty() && std::filesystem::is_regular_file(a.retrieval.items, ignored))
    throw UsageError(
        "--items: with --follow it must be a table of the model, because the vectors of a file belong "
        "to one version");
  if (a.server.tls_cert.empty() != a.server.tls_key.empty())
    throw UsageError("--tls-cert and --tls-key are given together or not at all");
}

// Parses "NAME=DIR" or "DIR", which may contain a = after a slash. `name` is --name.
NamedModel named_model(const std::string& name, const std::string& given) {
  const size_t at = given.find('=');
  if (at == std::string::npos || given.find('/') < at) return {name, given};
  if (!name.empty()) throw UsageError("--name and --model NAME=DIR both name the model: leave one of them out");
  NamedModel out{given.substr(0, at), given.substr(at + 1)};
  if (out.name.empty() || out.directory.empty())
    throw UsageError("--model takes DIR or NAME=DIR, not \"" + given + "\"");
  return out;
}

// Files that a server opens besides its connections: its own, and those of models that it reloads while all connections
// are open. A model over ranks has one group, a followed one a group per version.
rlim_t files_beside_connections(const ServeArguments& a) {
  const rlim_t groups = a.followed.empty() ? 1 : 3;
  return 64 * (a.models.size() + a.followed.size()) + 8 * groups * static_cast<rlim_t>(a.shards.where.world_size);
}

// Each connection is an open file. Raises the limit on open files, so that a flood of connections leaves some for a new
// model.
void allow_open_files(const ServeArguments& a) {
  const rlim_t beside = files_beside_connections(a) + ServerOptions::kTurnedAway;
  const rlim_t needed = a.server.max_connections + beside;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed) {
    fail(Code::kInvalidArgument, "--max-connections ", a.server.max_connections, " needs ", needed,
         " open files, but this process may have ", limit.rlim_max, " (ulimit -Hn)",
         limit.rlim_max > beside
             ? str_cat(": take --max-connections ", limit.rlim_max - beside, ", or raise that limit")
             : ": raise that limit");
  }
  limit.rlim_cur = needed;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    fail(Code::kResourceExhausted, "cannot raise the limit of open files to ", needed, " (ulimit -n)");
  }
}

EmbeddingModuleShardingPlan read_plan(const std::string& path, int ranks) {
  const ShardingPlan plan = ShardingPlan::from_json(read_file(path, "--plan: cannot read "));
  if (plan.world_size != ranks) {
    fail(Code::kInvalidArgument, "--plan: ", path, " is for ", plan.world_size, " ranks, but this job has ", ranks,
         ": make a new plan, or start as many with tessera launch");
  }
  return plan.at(kCollectionPath);
}

bool parse_serve_arguments(const std::vector<std::string>& args, ServeArguments* out) {
  ServeArguments& a = *out;
  GivenTexts given;
  a.server.threads = a.batcher.workers = 0;
  Options options = options_of(a, given);
  const auto parsed = parse_options(args, options);
  if (!parsed) return false;
  if (a.histories.path.empty() && !(*parsed)["histories-mib"].defaulted())
    throw UsageError("--histories-mib has no effect without --histories PATH");
  a.shards.where = RankEnvironment::from_environment();
  check(a, given);
  for (const std::string& model : given.models) a.models.push_back(named_model(given.name, model));
  for (const std::string& model : given.followed) a.followed.push_back(named_model(given.name, model));
  if (!a.models.empty()) a.shards.model = a.models[0].directory;
  if (!a.followed.empty()) a.shards.follow = a.followed[0].directory;
  if (a.retrieval.top_k > 0) {
    a.shards.make = [items = a.retrieval](const Runtime& runtime, const std::function<InferenceModel()>& open,
                                          std::shared_ptr<ProcessGroup> group, const ShardedPredictorOptions& how) {
      return retrieval::make_sharded_retriever(runtime, open, std::move(group), how, items);
    };
    a.shards.whole_tables = {a.retrieval.items};  // ranks search rows other than those they look up
  }
  const int half = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  if (a.server.threads == 0) a.server.threads = half;
  if (a.batcher.workers == 0) a.batcher.workers = half;
  if (!given.token_file.empty()) a.token = read_token(given.token_file);
  if (!given.plan.empty()) a.shards.plan = read_plan(given.plan, a.shards.where.world_size);
  return true;
}

// Returns their addresses as the end of a sentence.
std::string open_endpoints(const Runtime& runtime, const ServeArguments& a, Service& service, Metrics& metrics,
                           Log& log, std::vector<std::unique_ptr<Endpoint>>& out) {
  std::string told;
  for (const std::string& name : a.endpoints) {
    out.push_back(std::make_unique<Endpoint>(runtime, name, a.server, service, metrics, log));
    log.write(Level::kInfo, "endpoint", {{"id", name}, {"url", out.back()->url()}});
    told += str_cat(" and ", out.back()->url());
  }
  return told;
}

std::unique_ptr<KeptHistories> keep_histories(const Runtime& runtime, const HistoriesOptions& options, Served& served,
                                              Log& log) {
  const std::shared_ptr<Predictor> model = served.holder().current();
  const std::shared_ptr<const ColumnEncoding> columns = served.columns_of(model);
  if (columns == nullptr)
    fail(Code::kInvalidArgument,
         "--histories: the model does not know the columns of its data, so it has no histories");
  return std::make_unique<KeptHistories>(runtime, options, model->model(), columns, log);
}

// The options of --top-k. `log` outlives them.
retrieval::RetrieverOptions items_of(const ServeArguments& a, Log& log) {
  retrieval::RetrieverOptions items = a.retrieval;
  items.tell = [&log](const retrieval::IndexFigures& f) {
    log.write(Level::kInfo, "index", {{"text", text_of(f)}, {"recall", f.recall}});
  };
  return items;
}

int serve_here(const Runtime& runtime, const ServeArguments& a, Log& log) {
  allow_open_files(a);
  const bool sharded = a.shards.where.world_size > 1;
  if (!sharded) survive_lost_pages();  // a sharded model does not check for lost pages, and would go on with zeros
  Metrics metrics;
  const PredictorOptions how{a.shards.kernel, a.shards.dense_precision};
  const retrieval::RetrieverOptions items = items_of(a, log);
  std::vector<ModelSource> sources;
  for (const NamedModel& model : a.models) {
    sources.push_back({model.name, [&runtime, &a, &how, &items, sharded, model]() -> std::shared_ptr<Predictor> {
                         if (sharded) return open_sharded(runtime, a.shards);
                         if (items.top_k > 0) return retrieval::open_retriever(runtime, model.directory, how, items);
                         return open_predictor(runtime, model.directory, how);
                       }});
  }
  std::vector<std::shared_ptr<ModelFollower>> followers;
  for (const NamedModel& model : a.followed) {
    FollowOptions options{how};
    if (sharded) {
      options.ranks = follow_ranks(runtime, a.shards);
    } else if (a.retrieval.top_k > 0) {
      options.make = [&runtime, &items](InferenceModel version, const FollowOptions::Open& open) {
        return retrieval::make_retriever(runtime, std::move(version), open, items);
      };
    }
    const auto follower = std::make_shared<ModelFollower>(runtime, model.directory, std::move(options));
    sources.push_back({model.name, [follower] { return Following::open(*follower); }, follower});
    followers.push_back(follower);
  }
  Server server(a.server, metrics, log);  // created before the model is opened, so that a port in use is found at once
  ModelRepository models(sources, metrics, log);
  std::vector<std::unique_ptr<Following>> following;
  for (size_t i = 0; i < followers.size(); ++i)
    following.push_back(std::make_unique<Following>(followers[i], models.all()[a.models.size() + i]->holder(), log));
  Batcher batcher(a.batcher, metrics);
  Histories histories(runtime);
  if (!a.histories.path.empty()) histories.keep(keep_histories(runtime, a.histories, *models.all().front(), log));
  ServiceOptions answers = a.service;
  answers.histories = &histories;
  ModelService service(answers, models, batcher);
  Handler handler(service, models, batcher, metrics, histories.kept());
  std::optional<TokenHandler> guard;
  std::optional<TokenService> guarded;
  if (!a.token.empty()) guard.emplace(a.token, handler), guarded.emplace(a.token, service);
  RequestHandler& asked = guard ? static_cast<RequestHandler&>(*guard) : handler;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  const std::string more =
      open_endpoints(runtime, a, guarded ? static_cast<Service&>(*guarded) : service, metrics, log, endpoints);
  server.watch_signals([&models] { models.load("", [](const Outcome&) {}); });
  std::string served;
  for (const auto& each : models.all()) {
    const std::shared_ptr<Predictor> predictor = each->holder().current();
    const std::string version = predictor->model().version;
    if (const std::string& why = predictor->model().why_float32; !why.empty())
      log.write(Level::kInfo, "dense_in_float32", {{"model", each->name()}, {"why", why}});
    log.write(
        Level::kInfo, "listening",
        {{"url", server.url()}, {"model", each->name()}, {"version", version}, {"ranks", a.shards.where.world_size}});
    served += str_cat(served.empty() ? "" : ", ", each->name(), " (version ", version, ")");
  }
  std::cout << "serving " << served << " at " << server.url() << more << std::endl;
  if (guard && a.server.tls_cert.empty() && a.server.host != "127.0.0.1" && a.server.host != "::1")
    log.write(Level::kWarning, "token_in_the_clear", {{"do", "give --tls-cert and --tls-key, or listen on loopback"}});
  server.run(asked);
  endpoints.clear();
  batcher.stop();
  following.clear();
  log.write(Level::kInfo, "ended");
  return 0;
}

}  // namespace

int serve_command(const std::vector<std::string>& args) {
  ServeArguments a;
  if (!parse_serve_arguments(args, &a)) return 0;
  Log log(a.log_level);
  const PluginWatch watch;
  RuntimeOptions options;
  options.plugin_path = a.plugin_path;
  if (a.shards.where.rank == 0) return serve_here(Runtime(options), a, log);
  const int status = serve_shards(options, a.shards, log);
  std::_Exit(status);  // skips the usual cleanup, because a thread is still knocking at rank 0's door
}

}  // namespace tessera::cli
