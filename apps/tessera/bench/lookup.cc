// tessera bench lookup: compares lookup kernels with each other and with the machine's gather limit.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/bench.h"
#include "bench/lookup_subject.h"
#include "options.h"
#include "tessera/sdk/kernel.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

constexpr double kSampleUs = 1000;    // shortest time measured as one sample
constexpr double kDeviceUs = 20000;   // the same on a device, where a sample ends with a wait
constexpr int kMaxLookups = 1 << 16;  // calls in that time, at most
constexpr size_t kWaysKept = 3;       // ways kept for a subject that has many
constexpr double kMemoryShare = 0.8;  // share of the available memory that may be used
constexpr std::pair<const char*, DType> kFloats[] = {
    {"fp32", DType::kFloat32}, {"fp16", DType::kFloat16}, {"bf16", DType::kBFloat16}};

struct LookupBench {
  CommonOptions common;
  LookupShape shape;
  std::vector<std::string> kernels;
  std::vector<LookupPass> passes;
  std::vector<OptimizerSpec> optimizers;  // optimizers for `train`
  std::string device;
};

// Bytes of memory that programs can still get; 0 if the system does not say.
double available_memory() {
  std::ifstream info("/proc/meminfo");
  std::string name, unit;
  for (double kib = 0; info >> name >> kib; std::getline(info, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

// Bytes for rows and, when training, their optimizer state; for ids and outputs.
double needed_memory(const Runtime& runtime, const LookupBench& b) {
  const double output = static_cast<double>(b.shape.bags()) * static_cast<double>(b.shape.dim) * sizeof(float);
  const double ids = static_cast<double>(b.shape.lookups()) * b.shape.batches * sizeof(int64_t);
  double bytes = 2 * (output + ids);
  const double rows = static_cast<double>(b.shape.tables) * static_cast<double>(b.shape.rows);
  for (LookupPass pass : b.passes) {
    double of_kernel = pass == LookupPass::kTrain ? 0 : b.shape.table_bytes();
    for (const OptimizerSpec& optimizer : pass == LookupPass::kTrain ? b.optimizers : std::vector<OptimizerSpec>()) {
      const ComponentPtr part = runtime.create(TSR_OPTIMIZER_KIND, optimizer.name, optimizer.options);
      const sdk::OptimizerRef updates(part->raw());
      of_kernel += b.shape.table_bytes();
      for (uint32_t k = 0; k < updates.num_states(); ++k)
        of_kernel += rows * static_cast<double>(updates.state_width(k, b.shape.dim)) * sizeof(float);
    }
    if (pass == LookupPass::kCopy) of_kernel = 2 * static_cast<double>(b.shape.lookups() * b.shape.row_bytes());
    bytes += of_kernel *
             (pass == LookupPass::kLimit || pass == LookupPass::kCopy ? 1 : static_cast<double>(b.kernels.size()));
  }
  return bytes;
}

void refuse_what_does_not_fit(const Runtime& runtime, const LookupBench& b) {
  const double needed = needed_memory(runtime, b);
  const double available = b.shape.stream ? static_cast<double>(b.shape.stream->info().free_bytes) : available_memory();
  if (available == 0 || needed <= kMemoryShare * available) return;
  const auto gib = [](double bytes) { return std::round(bytes / (1 << 30) * 10) / 10; };
  throw UsageError(
      str_cat("the tables of all kernels and passes need ", gib(needed), " GiB, but ", gib(available),
              " GiB of memory are available and at most 80 % of that may be used: ask for fewer --tables, ",
              "--rows, --dim or kernels at once"));
}

void check_positive(const LookupShape& s) {
  require_range({{"--tables", s.tables}, {"--rows", s.rows}, {"--dim", s.dim}, {"--batch", s.batch}});
  require_range({{"--pooling", s.pooling}, {"--batches", s.batches}});
  const double ids = static_cast<double>(s.tables) * static_cast<double>(s.batch) * static_cast<double>(s.pooling);
  if (ids > 1e9 || s.tables > 1000000) {
    throw UsageError(str_cat("a batch of ", ids, " ids for ", s.tables,
                             " tables is too large: at most 1e9 ids and 1000000 tables are looked up at once"));
  }
}

void read_dtype(const std::string& dtype, LookupShape* shape) {
  for (const auto& [name, weights] : kFloats) {
    if (dtype != name) continue;
    shape->weights = weights;
    return;
  }
  for (RowFormat format : {RowFormat::kInt8, RowFormat::kInt4, RowFormat::kInt2, RowFormat::kFloat8}) {
    const sdk::RowFormatInfo& info = sdk::info_of(format);
    if (dtype != info.name) continue;
    if (shape->dim % info.dim_multiple == 0) {
      shape->format = format;
      return;
    }
    throw UsageError(
        str_cat("--dim ", shape->dim, " cannot be quantized to ", dtype, ": take a multiple of ", info.dim_multiple));
  }
  throw UsageError(
      str_cat("--dtype \"", dtype, "\" is not measured: fp32, fp16, bf16, int8, int4, int2 and fp8 tables are"));
}

// Returns false if help was printed.
bool parse_lookup(const std::vector<std::string>& args, LookupBench* b) {
  std::string kernels, passes, dtype, optimizers;
  Options options(
      "bench lookup", "[OPTIONS]",
      "Times kernels on the same batches, in turn in each round. gbps counts the bytes of rows: each looked-up row "
      "once for forward and limit; for train also each distinct row of a batch twice, because the update reads and "
      "writes it. moved_gbps also counts the optimizer's states. ratio is the time divided by that of the first "
      "kernel of a pass, round by round.\n\nThe exit status is 1 if a kernel's results differ from those of the "
      "kernel \"reference\".");
  auto add = options.add_options();
  add("kernel", po::value(&kernels)->default_value("auto"), "kernel plugins, separated by commas");
  add("pass", po::value(&passes)->default_value("forward"),
      "forward; train: forward, backward and update; limit: the machine's random gather of the same rows, the best "
      "of several prefetch distances and hints; copy: see --device. Separate several by commas");
  add("optimizer", po::value(&optimizers)->default_value("exact_rowwise_adagrad"),
      "fused optimizers for train, separated by commas");
  add("device", po::value(&b->device)->default_value("cpu"),
      "device of rows, ids and outputs: cpu, or the id of a device plugin that all kernels serve; calls are then "
      "timed in the order of its stream. --pass copy copies as many bytes as a batch reads within its memory");
  add("tables", po::value(&b->shape.tables)->default_value(b->shape.tables), "number of tables");
  add("rows", po::value(&b->shape.rows)->default_value(b->shape.rows), "rows of each table");
  add("dim", po::value(&b->shape.dim)->default_value(b->shape.dim), "columns of each table");
  add("batch", po::value(&b->shape.batch)->default_value(b->shape.batch), "bags of each table");
  add("pooling", po::value(&b->shape.pooling)->default_value(b->shape.pooling), "ids per bag");
  add("index-dist", po::value(&b->shape.index_dist)->default_value(b->shape.index_dist),
      "uniform, or zipf:A with frequent rows scattered over the table");
  add("dtype", po::value(&dtype)->default_value("fp32"),
      "format of the rows: fp32, fp16 or bf16; for forward and limit also int8, int4, int2 and fp8, if the kernels "
      "serve \"quant\"");
  add("load", po::value(&b->shape.load)->default_value(b->shape.load),
      "for kernels that create rows on demand: number of rows divided by their capacity, at most 1");
  add("batches", po::value(&b->shape.batches)->default_value(b->shape.batches),
      "number of different batches, used in rotation");
  if (!parse(options, args, &b->common)) return false;
  check_positive(b->shape);
  if (!(b->shape.load > 0 && b->shape.load <= 1)) throw UsageError("--load must be above 0 and at most 1");
  b->shape.alpha();  // throws for an invalid --index-dist
  read_dtype(dtype, &b->shape);
  for (const std::string& name : text_list("--optimizer", optimizers))
    b->optimizers.push_back({name, R"({"learning_rate": 0.01})", 0});
  b->kernels = text_list("--kernel", kernels);
  for (const std::string& pass : text_list("--pass", passes)) b->passes.push_back(lookup_pass_from(pass));
  if (b->shape.format && std::count(b->passes.begin(), b->passes.end(), LookupPass::kTrain) > 0) {
    throw UsageError("--pass train cannot go with --dtype " + dtype + ": quantized tables only infer");
  }
  const bool copies = std::count(b->passes.begin(), b->passes.end(), LookupPass::kCopy) > 0;
  if (copies && b->device == "cpu") throw UsageError("--pass copy needs a device: name it with --device");
  if (std::count(b->passes.begin(), b->passes.end(), LookupPass::kLimit) > 0 && b->device != "cpu")
    throw UsageError("--pass limit measures host memory: use --pass copy for a device");
  return true;
}

std::vector<LookupSubject> make_subjects(const Runtime& runtime, const LookupBench& b, const LookupBatches& batches) {
  std::vector<LookupSubject> subjects;
  const std::vector<OptimizerSpec> forward_alone{OptimizerSpec()};
  for (LookupPass pass : b.passes) {
    if (pass == LookupPass::kLimit) {
      subjects.push_back(limit_subject(runtime, b.shape, batches));
      continue;
    }
    if (pass == LookupPass::kCopy) {
      subjects.push_back(copy_subject(b.shape));
      continue;
    }
    for (const OptimizerSpec& optimizer : pass == LookupPass::kTrain ? b.optimizers : forward_alone) {
      const LookupReference reference(runtime, b.shape, batches, optimizer);
      for (const std::string& kernel : b.kernels) {
        subjects.push_back(kernel_subject(runtime, kernel, b.shape, batches, optimizer, reference));
      }
    }
  }
  return subjects;
}

// Runs all batches once, timing `way.calls` of them together. A short rotation is repeated until it takes kSampleUs.
void time_round(LookupWay& way, size_t batches) {
  const auto calls = static_cast<size_t>(way.calls);
  std::vector<double> samples;
  for (size_t sample = 0; sample < (batches + calls - 1) / calls; ++sample) {
    const Stopwatch watch;
    for (int call = 0; call < way.calls; ++call) way.run(way.next++ % batches);
    if (way.wait) way.wait();
    samples.push_back(watch.us() / way.calls);
  }
  way.samples.insert(way.samples.end(), samples.begin(), samples.end());
  way.rounds.push_back(percentiles(std::move(samples)).median);
}

// Like time_round(), after one untimed pass over all batches. Each way then finds the caches as it leaves them itself,
// so a subject with several ways over the same rows has no advantage.
void time_warm_round(LookupWay& way, size_t batches) {
  for (size_t b = 0; b < batches; ++b) way.run(b);
  if (way.wait) way.wait();
  time_round(way, batches);
}

// Grows buffers to their size and finds the number of calls per sample.
void warm_up(LookupWay& way, size_t batches) {
  time_round(way, batches);
  way.forget();
  time_round(way, batches);
  const double call_us = std::max(percentiles(way.samples).median, 1e-3);
  way.calls = static_cast<int>(
      std::clamp(std::ceil((way.wait ? kDeviceUs : kSampleUs) / call_us), 1.0, static_cast<double>(kMaxLookups)));
  way.forget();
}

const LookupWay& best_way(const LookupSubject& subject) {
  return *std::min_element(subject.ways.begin(), subject.ways.end(), [](const LookupWay& a, const LookupWay& b) {
    return percentiles(a.samples).median < percentiles(b.samples).median;
  });
}

// If there are many ways, keeps the fastest few for the rounds.
void keep_the_best(LookupSubject& subject, size_t batches) {
  if (subject.ways.size() <= kWaysKept) return;
  for (int sweep = 0; sweep < 3; ++sweep) {
    for (LookupWay& way : subject.ways) time_warm_round(way, batches);
  }
  std::sort(subject.ways.begin(), subject.ways.end(), [](const LookupWay& a, const LookupWay& b) {
    return percentiles(a.samples).median < percentiles(b.samples).median;
  });
  subject.ways.resize(kWaysKept);
  for (LookupWay& way : subject.ways) way.forget();
}

// Median over rounds of this subject's time divided by that of the first subject doing the same work.
double ratio_to(const LookupSubject& first, const LookupSubject& subject) {
  const std::vector<double>&of_first = best_way(first).rounds, &own = best_way(subject).rounds;
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(of_first.size(), own.size()); ++i) ratios.push_back(own[i] / of_first[i]);
  return percentiles(std::move(ratios)).median;
}

const LookupSubject& first_alike(const std::vector<LookupSubject>& subjects, const LookupSubject& subject) {
  return *std::find_if(subjects.begin(), subjects.end(), [&](const LookupSubject& s) {
    return s.pass == subject.pass && s.optimizer == subject.optimizer;
  });
}

json result_line(const LookupBench& b, const LookupSubject& subject) {
  const LookupWay& way = best_way(subject);
  const double us = percentiles(way.samples).median;
  json line{{"bench", "lookup"},
            {"kernel", subject.kernel},
            {"pass", to_string(subject.pass)},
            {"optimizer", subject.optimizer},
            {"T", b.shape.tables},
            {"E", b.shape.rows},
            {"D", b.shape.dim},
            {"B", b.shape.batch},
            {"L", b.shape.pooling},
            {"dtype", b.shape.dtype()},
            {"threads", b.common.threads},
            {"alpha", b.shape.alpha()}};
  if (b.shape.stream) line["device"] = b.device;  // set before the first time, so that it counts as a circumstance
  add_percentiles(&line, "us", way.samples);
  add_rounds(&line, "us", way.rounds);
  line.update({{"ns_per_lookup", 1e3 * us / static_cast<double>(b.shape.lookups())},
               {"gbps", subject.bytes / us / 1e3},
               {"verified", subject.verified}});
  if (subject.pass == LookupPass::kTrain) line["moved_gbps"] = subject.moved / us / 1e3;
  if (subject.pass == LookupPass::kLimit) {
    line["prefetch"] = way.ahead;
    line["hint"] = way.hint;
  }
  return line;
}

}  // namespace

LookupPass lookup_pass_from(const std::string& name) {
  for (LookupPass pass : {LookupPass::kForward, LookupPass::kTrain, LookupPass::kLimit, LookupPass::kCopy}) {
    if (name == to_string(pass)) return pass;
  }
  throw UsageError("unknown --pass \"" + name + "\": forward, train, limit or copy");
}

const char* to_string(LookupPass pass) {
  return pass == LookupPass::kForward ? "forward"
         : pass == LookupPass::kTrain ? "train"
         : pass == LookupPass::kLimit ? "limit"
                                      : "copy";
}

namespace {

int run_lookup(LookupBench b) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  b.shape.stream = open_device(runtime, b.device);
  refuse_what_does_not_fit(runtime, b);
  const LookupBatches batches = lookup_batches(b.shape);
  std::vector<LookupSubject> subjects = make_subjects(runtime, b, batches);
  for (LookupSubject& subject : subjects) {
    for (LookupWay& way : subject.ways) warm_up(way, batches.size());
    keep_the_best(subject, batches.size());
  }
  Rounds rounds(b.common);
  Report report(b.common);
  while (rounds.next()) {
    for (LookupSubject& subject : subjects) {
      for (LookupWay& way : subject.ways) time_warm_round(way, batches.size());
      if (!rounds.print_each()) continue;
      report.line(result_line(b, subject));
      for (LookupWay& way : subject.ways) way.forget();
    }
  }
  if (!rounds.print_each()) {
    for (const LookupSubject& subject : subjects) {
      json line = result_line(b, subject);
      const LookupSubject& first = first_alike(subjects, subject);
      if (&first != &subject) line["ratio"] = ratio_to(first, subject);
      report.line(line);
    }
  }
  const auto right = [](const LookupSubject& subject) { return subject.verified; };
  return std::all_of(subjects.begin(), subjects.end(), right) ? 0 : 1;
}

}  // namespace

BenchRun bench_lookup(const std::vector<std::string>& args, const CommonOptions& common) {
  LookupBench b{.common = common};
  if (!parse_lookup(args, &b)) return {};
  return [b] { return run_lookup(b); };
}

}  // namespace tessera::cli
