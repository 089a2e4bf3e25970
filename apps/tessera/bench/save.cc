// tessera bench save: measures checkpoints during training and apart from it, and compares with memory and disk.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "bench/bench.h"
#include "bench/sharded_workload.h"
#include "options.h"
#include "processes.h"
#include "tessera/checkpoint.h"
#include "tessera/layer_graph.h"
#include "tessera/sdk/random.h"
#include "tessera/trainer.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr int64_t kDenseInputs = 13;

struct SaveBench {
  CommonOptions common;
  ShardedWorkload workload{8, "500000", 64, 1024, 1, "row_wise"};
  int nproc = kNotAsked;
  int steps = 20;  // steps before a save, which give the pace without one
  std::string directory = fs::temp_directory_path().string();
};

// A folder that rank 0 removes with everything in it.
class SaveFolder {
 public:
  SaveFolder(const SaveBench& b, const ProcessGroup& group) : group_(group) {
    std::string name = (fs::path(b.directory) / "tessera-save-XXXXXX").string();
    if (group.rank() == 0 && ::mkdtemp(name.data()) == nullptr)
      fail(Code::kUnavailable, "cannot make a folder ", name, ": ", system_error());
    path_ = group.all_gather_text(name, "folder")[0];
  }
  ~SaveFolder() {
    std::error_code ignored;
    if (group_.rank() == 0) fs::remove_all(path_, ignored);
  }
  SaveFolder(const SaveFolder&) = delete;
  SaveFolder& operator=(const SaveFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  const ProcessGroup& group_;
  fs::path path_;
};

// Seconds that a plain program takes to write the bytes to disk, one block after the other.
double plain_write(const std::string& path, const Tensor& bytes) {
  constexpr int64_t kBlock = int64_t{16} << 20;
  const Stopwatch watch;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::fallocate(fd, 0, 0, bytes.bytes()) != 0)
    fail(Code::kUnavailable, "cannot make ", path, ": ", system_error());
  bool fine = true;
  for (int64_t at = 0; at < bytes.bytes() && fine; at += kBlock) {
    const int64_t n = std::min(kBlock, bytes.bytes() - at);
    fine = ::pwrite(fd, static_cast<const char*>(bytes.raw()) + at, static_cast<size_t>(n), at) == n;
  }
  fine = fine && ::fsync(fd) == 0;
  ::close(fd);
  ::unlink(path.c_str());
  if (!fine) fail(Code::kUnavailable, "cannot write ", path, ": ", system_error());
  return watch.us() / 1e6;
}

class SaveSubject {
 public:
  SaveSubject(const Runtime& runtime, const SaveBench& b, std::shared_ptr<ProcessGroup> group)
      : b_(b), group_(std::move(group)), folder_(b, *group_) {
    ModelTrainerOptions o{.tables = workload_tables(b_.workload)};
    DlrmOptions dlrm;
    dlrm.dense_inputs = kDenseInputs;
    dlrm.embedding_dim = b_.workload.dim;
    dlrm.bottom_mlp = {512, 256, b_.workload.dim};
    dlrm.top_mlp = {512, 256, 1};
    o.graph = dlrm_graph(dlrm, o.tables);
    o.dense_optimizer = {"sgd", R"({"learning_rate": 0.01})"};
    o.parallel.sharded.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.01, "eps": 1e-8})", 0};
    ShardingPlan plan{.world_size = b_.nproc, .local_world_size = group_->local_world_size()};
    plan.modules = {{kCollectionPath, workload_plan(runtime, o.tables, b_.workload.sharding,
                                                    Topology::of(b_.nproc, plan.local_world_size, "cpu"))}};
    o.parallel.plan = std::move(plan);
    batch_.sparse = workload_batches(o.tables, b_.workload, group_->rank(), 1)[0];
    batch_.dense = Tensor::zeros({b_.workload.batch, kDenseInputs});
    batch_.labels = Tensor::zeros({b_.workload.batch});
    batch_.global_size = b_.workload.batch * b_.nproc;
    sdk::Random random(7 + static_cast<uint64_t>(group_->rank()));
    for (float& x : batch_.dense.span<float>()) x = static_cast<float>(random.uniform());
    trainer_ = std::make_unique<ModelTrainer>(runtime, group_, std::move(o));
    writer_ =
        std::make_unique<CheckpointWriter>(folder_.file("saved"), trainer_->parallel(), trainer_->dense_optimizer(), 1);
    if (!writer_->reserve_copies()) fail(Code::kResourceExhausted, "there is no memory for copies of the rows");
    from_ = Tensor::zeros({writer_->copy_bytes()}, DType::kUInt8);
    to_ = Tensor::zeros({writer_->copy_bytes()}, DType::kUInt8);
    round();
    take_line();
  }

  void round() {
    Stopwatch watch;
    std::memcpy(to_.raw(), from_.raw(), static_cast<size_t>(from_.bytes()));
    copies_.push_back(largest(watch.us() / 1e6));
    const double alone = steps([&](int done) { return done < b_.steps; });
    group_->barrier();
    watch = Stopwatch();
    writer_->start("{}");
    pauses_.push_back(largest(watch.us() / 1e6));
    paces_.push_back(alone / steps([&](int) { return largest(writer_->busy() ? 1 : 0) > 0; }));
    writer_->finish();
    group_->barrier();
    watch = Stopwatch();
    writer_->save("{}");
    saves_.push_back(largest(watch.us() / 1e6));
    group_->barrier();
    plain_.push_back(largest(plain_write(folder_.file(str_cat("plain-", group_->rank())), from_)));
  }

  // The times of all rounds since the last call.
  Line take_line() {
    const double gib = static_cast<double>(writer_->copy_bytes()) / (1 << 30);
    Line line = {
        {"bench", "save"},      {"world", b_.nproc},      {"T", b_.workload.tables},      {"rows", b_.workload.rows},
        {"D", b_.workload.dim}, {"B", b_.workload.batch}, {"threads", b_.common.threads}, {"gib_per_rank", gib}};
    add_times(&line, "s", pauses_);
    line["copy_s"] = percentiles(copies_).median;
    line["pace_while_saving"] = percentiles(paces_).median;
    line["save_s"] = percentiles(saves_).median;
    line["plain_write_s"] = percentiles(plain_).median;
    for (auto* samples : {&pauses_, &copies_, &paces_, &saves_, &plain_}) samples->clear();
    return line;
  }

 private:
  double largest(double mine) const { return largest_over_ranks(*group_, mine); }
  // Mean time of a step; runs at least one step, and more while `more` asks for some.
  template <class More>
  double steps(const More& more) {
    const Stopwatch watch;
    int done = 0;
    do {
      trainer_->step(batch_);
      ++done;
    } while (more(done));
    trainer_->take_losses();
    return largest(watch.us() / 1e6 / done);
  }

  SaveBench b_;
  std::shared_ptr<ProcessGroup> group_;
  SaveFolder folder_;
  Batch batch_;
  std::unique_ptr<ModelTrainer> trainer_;
  std::unique_ptr<CheckpointWriter> writer_;
  Tensor from_, to_;
  std::vector<double> copies_, pauses_, paces_, saves_, plain_;
};

void run_save_rank(const SaveBench& b, const RankEnvironment& where) {
  const Runtime runtime({{}, {}, true, b.common.threads});
  const auto group = ProcessGroup::connect(runtime, where, {"auto", "{}", b.common.deadline_s(300)});
  std::vector<std::unique_ptr<SaveSubject>> subjects;
  subjects.push_back(std::make_unique<SaveSubject>(runtime, b, group));
  run_rounds(b.common, *group, subjects);
  group->barrier("end");
}

}  // namespace

BenchRun bench_save(const std::vector<std::string>& args, const CommonOptions& common) {
  SaveBench b{.common = common};
  Options options(
      "bench save", "[OPTIONS]",
      "Saves a DLRM's tables during training and prints how long a step waits for the copy of the rows, compared "
      "with one copy in memory (copy_s), and how fast steps are meanwhile (1: as fast as without). Then saves them "
      "without training, compared with a plain program that writes as many bytes (plain_write_s).");
  auto add = options.add_options();
  add("nproc", po::value(&b.nproc)->value_name("N"), "number of ranks on this machine (default: 1)");
  add("tables", po::value(&b.workload.tables)->default_value(b.workload.tables), "number of tables");
  add("rows", po::value(&b.workload.rows)->default_value(b.workload.rows), "rows of each table");
  add("dim", po::value(&b.workload.dim)->default_value(b.workload.dim), "columns of each table");
  add("batch", po::value(&b.workload.batch)->default_value(b.workload.batch), "samples of a step on each rank");
  add("sharding", po::value(&b.workload.sharding)->default_value(b.workload.sharding), "sharder of all tables");
  add("steps", po::value(&b.steps)->default_value(b.steps), "steps of a round in which nothing is saved");
  add("dir", po::value(&b.directory)->default_value(b.directory), "folder to save to, and so the disk");
  if (!parse(options, args, &b.common)) return {};
  const ShardedWorkload& w = b.workload;
  require_range({{"--tables", w.tables}, {"--dim", w.dim}, {"--batch", w.batch}, {"--steps", b.steps}});
  b.nproc = bench_ranks(b.nproc, 1);
  return [b] {
    run_bench(b.nproc, b.common.deadline_s(3600), [&](const RankEnvironment& where) { run_save_rank(b, where); });
    return 0;
  };
}

}  // namespace tessera::cli
