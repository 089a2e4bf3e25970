// Runs every bench once, tiny, and checks that its lines have the fields that scripts read. No speed is judged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/test_directory.h"
#include "shell.h"

namespace {

using nlohmann::json;

using Result = tessera::test::Ended;

// `streams` is a redirection that includes or drops standard error.
Result run_program(const std::string& arguments, const std::string& streams = "") {
  return tessera::test::run_shell(TESSERA_PROGRAM " " + arguments + streams);
}

Result run(const std::string& arguments, const std::string& streams = "") {
  return run_program("bench " + arguments, streams);
}

std::vector<json> parsed(const std::string& text) {
  std::vector<json> lines;
  for (size_t start = 0, end = 0; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    lines.push_back(json::parse(text.substr(start, end - start)));
  }
  return lines;
}

// The measurements of a bench that succeeds, `count` lines. The closing lines, which are about the run, are left out.
std::vector<json> lines_of(const std::string& arguments, size_t count) {
  const Result result = run(arguments + " --json --rounds 2");
  EXPECT_EQ(result.status, 0) << arguments;
  std::vector<json> lines, closing;
  for (const json& line : parsed(result.output)) {
    const std::string kind = line.at("bench");
    (kind == "run" || kind == "bar" ? closing : lines).push_back(line);
  }
  EXPECT_TRUE(!closing.empty() && closing.back().at("bench") == "run") << result.output;
  if (lines.size() != count) throw std::runtime_error(arguments + " measured something else:\n" + result.output);
  return lines;
}

void expect_values(const json& line, const json& values) {
  for (const auto& [name, value] : values.items()) EXPECT_EQ(line.at(name), value) << name << " in " << line;
}

struct Wrong {
  std::string arguments;
  const char* named;
};

// Expects that the bench refuses each of these, in one sentence that has the words.
void expect_refused(const std::string& bench, const std::vector<Wrong>& cases) {
  for (const auto& [arguments, named] : cases) {
    const Result result = run(bench + " " + arguments, " 2>&1 </dev/null");
    EXPECT_EQ(result.status, 2) << arguments << ": " << result.output;
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
    EXPECT_NE(result.output.find(named), std::string::npos) << result.output;
  }
}

void expect_fields(const json& line, const std::vector<std::string>& fields) {
  for (const std::string& field : fields) EXPECT_TRUE(line.contains(field)) << field << " in " << line;
}

void expect_times(const json& line) {
  EXPECT_GT(line.at("median_us"), 0) << line;
  EXPECT_LE(line.at("p10_us"), line.at("median_us")) << line;
  EXPECT_LE(line.at("median_us"), line.at("p90_us")) << line;
}

constexpr const char* kTinyLookup = "lookup --tables 3 --rows 50 --batch 7 --pooling 3 --batches 3 ";

void expect_lookup(const json& line, const std::string& kernel, const std::string& pass) {
  expect_fields(line, {"bench", "kernel", "pass", "optimizer", "T", "E", "D", "B", "L", "dtype", "threads", "alpha",
                       "median_us", "p10_us", "p90_us", "ns_per_lookup", "gbps", "verified"});
  expect_values(line, {{"bench", "lookup"},
                       {"kernel", kernel},
                       {"pass", pass},
                       {"T", 3},
                       {"E", 50},
                       {"B", 7},
                       {"L", 3},
                       {"dtype", "fp32"},
                       {"verified", true}});
  EXPECT_GT(line.at("gbps"), 0) << line;
  EXPECT_NEAR(line.at("ns_per_lookup").get<double>() * 63 / 1e3, line.at("median_us").get<double>(), 1e-6);
  expect_times(line);
}

TEST(BenchLookup, ForwardOfTwoKernels) {
  const auto lines = lines_of(std::string(kTinyLookup) + "--kernel reference,cpu --pass forward --dim 16", 2);
  expect_lookup(lines[0], "reference", "forward");
  expect_lookup(lines[1], "cpu", "forward");
  expect_values(lines[0], {{"alpha", 0}, {"optimizer", "none"}});
}

TEST(BenchLookup, TrainingWithEveryOptimizer) {
  for (const std::string optimizer : {"exact_sgd", "exact_adagrad", "exact_rowwise_adagrad", "adam",
                                      "partial_rowwise_adam", "lamb", "partial_rowwise_lamb", "lars_sgd"}) {
    const auto lines = lines_of(std::string(kTinyLookup) + "--kernel reference,cpu --pass train --dim 20 --threads 2 " +
                                    "--index-dist zipf:1.05 --optimizer " + optimizer,
                                2);
    expect_lookup(lines[0], "reference", "train");
    expect_lookup(lines[1], "cpu", "train");
    expect_values(lines[1], {{"alpha", 1.05}, {"threads", 2}, {"optimizer", optimizer}});
  }
}

TEST(BenchLookup, OfALargeBatchSomeBagsAreCompared) {
  const auto lines = lines_of(
      "lookup --kernel cpu --pass forward,train --tables 2 --rows 900 --dim 4 --batch 9000 --pooling 20 --batches 2",
      2);
  for (const json& line : lines) EXPECT_EQ(line.at("verified"), true) << line;
}

// Rows of whole cache lines, up to more than the registers hold, and rows that straddle cache lines.
TEST(BenchLookup, LimitOfEveryKindOfRow) {
  for (const char* dim : {"1", "16", "20", "32", "64", "128", "256", "272"}) {
    const auto lines =
        lines_of(std::string(kTinyLookup) + "--pass limit --kernel reference,cpu --threads 2 --dim " + dim, 1);
    expect_lookup(lines[0], "limit", "limit");
    expect_fields(lines[0], {"prefetch", "hint"});
  }
}

TEST(BenchLookup, LimitOnThreads) {
  const auto lines =
      lines_of("lookup --pass limit --tables 2 --rows 300 --batch 256 --pooling 10 --dim 32 --threads 2", 1);
  EXPECT_EQ(lines[0].at("verified"), true);
}

TEST(BenchLookup, PassesSideBySideARoundPerLine) {
  const Result result = run(std::string(kTinyLookup) + "--pass forward,limit --kernel cpu --json --round-per-line",
                            " <<'END'\n\n\n\nEND");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 6) << result.output;
}

TEST(BenchLookup, TablesOfHalfPrecisionTrainToo) {
  for (const char* dtype : {"fp16", "bf16"}) {
    auto lines = lines_of(std::string(kTinyLookup) + "--pass forward,train,limit --kernel cpu --dtype " + dtype, 3);
    for (json& line : lines) {
      EXPECT_EQ(line.at("dtype"), dtype);
      line["dtype"] = "fp32";
    }
    expect_lookup(lines[0], "cpu", "forward");
    expect_lookup(lines[1], "cpu", "train");
    expect_lookup(lines[2], "limit", "limit");
  }
}

TEST(BenchLookup, QuantizedTablesAndTheLimitOfTheirRows) {
  for (const auto& [dtype, dim] : {std::pair("int8", 10), {"int4", 64}, {"int2", 40}, {"fp8", 7}}) {
    auto lines = lines_of(
        std::string(kTinyLookup) + "--pass forward,limit --dtype " + dtype + " --dim " + std::to_string(dim), 2);
    for (json& line : lines) {
      EXPECT_EQ(line.at("dtype"), dtype);
      line["dtype"] = "fp32";
    }
    expect_lookup(lines[0], "quant", "forward");
    expect_lookup(lines[1], "limit", "limit");
  }
}

TEST(BenchInfer, EveryFormatAndRequestSize) {
  const auto lines = lines_of(
      "infer --tables 3 --rows 50 --dim 16 --pooling 4 --batch 1,5 --threads 2 --dtype int8,int4,int2,fp16,fp32,fp8",
      12);
  for (const json& line : lines) {
    expect_fields(line, {"bench", "kernel", "T", "E", "D", "L", "B", "dtype", "threads", "median_us", "p10_us",
                         "p90_us", "p99_us", "requests_per_s", "ns_per_lookup", "verified"});
    expect_values(line, {{"bench", "infer"}, {"verified", true}});
    expect_times(line);
  }
  EXPECT_EQ(lines[1].at("B"), 5);
  EXPECT_EQ(lines[2].at("dtype"), "int4");
}

TEST(BenchInfer, WhatCannotBeIsOneSentence) {
  expect_refused("infer", {
                              {"--dtype int3", "int3"},
                              {"--batch 0", "--batch"},
                              {"--rows 0", "--rows"},
                              {"--dtype int2 --dim 12", "multiples of 8"},
                              {"--kernel cpu --rows 5 --tables 1",
                               "rows of the format \"fbgemm.int8\" are not known to this kernel"},
                          });
}

TEST(BenchMoves, OneThreadAndSeveral) {
  const auto lines = lines_of("moves --tables 3 --dim 12 --batch 2500 --arrivals 3 --threads 3", 6);
  for (size_t i = 0; i < lines.size(); ++i) {
    const json& line = lines[i];
    expect_fields(line, {"bench", "op", "T", "D", "B", "arrivals", "threads", "median_us", "p10_us", "p90_us", "gbps",
                         "verified"});
    EXPECT_EQ(line.at("bench"), "moves");
    EXPECT_EQ(line.at("op"), (std::array{"memcpy", "combine", "split"})[i % 3]);
    expect_values(line, {{"threads", i < 3 ? 1 : 3}, {"verified", true}});
    expect_times(line);
  }
  lines_of("moves --tables 1 --dim 8 --batch 4 --threads 1", 3);
  expect_refused("moves", {{"--batch 0", "--batch must be at least 1"}});
}

TEST(BenchSearch, BesideReading) {
  // the exit status says that the scores are right
  const auto lines = lines_of("search --items 700 --dim 12 --batch 5 --top-k 3", 2);
  EXPECT_EQ(lines[0].at("op"), "search");
  EXPECT_EQ(lines[1].at("op"), "read");
  for (const json& line : lines) expect_times(line);
  expect_refused("search", {{"--items 3 --top-k 4", "--top-k is more than --items"}});
}

TEST(BenchLookup, WhatCannotBeIsOneSentence) {
  expect_refused("lookup", {
                               {"--kernel nothing", "nothing"},
                               {"--pass sideways", "sideways"},
                               {"--dtype fp12", "fp12"},
                               {"--dtype int4 --dim 6", "multiple of 4"},
                               {"--dtype int8 --pass train", "--pass train cannot go with --dtype int8"},
                               {"--dtype int8 --kernel reference",
                                "rows of the format \"fbgemm.int8\" are not known to this kernel"},
                               {"--index-dist normal", "zipf:A"},
                               {"--index-dist zipf:x", "zipf:A"},
                               {"--optimizer nothing --pass train", "nothing"},
                               {"--optimizer none --pass train", "none"},
                               {"--rows 0", "--rows"},
                               {"--rows many", "many"},
                               {"--tables 1000 --rows 1000000000000", "GiB"},
                               {"--colour red", "--colour"},
                           });
}

TEST(BenchCollective, EveryOperation) {
  const auto lines = lines_of(
      "collective --backend tcp --op all_to_all,all_reduce,reduce_scatter,all_gather --bytes 64,4096 --nproc 2", 8);
  for (const json& line : lines) {
    expect_fields(line, {"bench", "backend", "op", "bytes", "world", "median_us", "p10_us", "p90_us", "algbw_gbps"});
    expect_values(line, {{"bench", "collective"}, {"world", 2}, {"verified", true}});
    expect_times(line);
  }
}

TEST(BenchCollective, SidesWithOptionsAndTheBareSocket) {
  const auto lines =
      lines_of("collective --backend 'tcp,tcp?shm=false&spin_us=20,raw' --op all_reduce --bytes 4096", 3);
  EXPECT_EQ(lines[1].at("backend"), "tcp?shm=false&spin_us=20");
  EXPECT_EQ(lines[2].at("backend"), "raw");
  for (const json& line : lines) EXPECT_EQ(line.at("verified"), true) << line;
}

TEST(BenchCollective, WhatCannotBeIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"--backend raw --nproc 3", "--backend raw is for 2 ranks, not 3"},
      {"--backend 'tcp?shm=maybe'", "option \"shm\" must be true or false"},
      {"--backend 'tcp?shn=false'", "the nearest known one is \"shm\""},
      {"--backend 'tcp?shm'", "options are ?key=value, joined by &"},
      {"--op all_to_some", "unknown operation \"all_to_some\""},
  };
  for (const auto& [arguments, named] : cases) {
    const Result result = run(std::string("collective --bytes 4096 --rounds 1 ") + arguments, " 2>&1");
    EXPECT_NE(result.status, 0) << arguments;
    EXPECT_NE(result.output.find(named), std::string::npos) << result.output;
  }
}

TEST(BenchStep, EachSharding) {
  for (const std::string sharding : {"table_wise", "row_wise", "column_wise", "data_parallel"}) {
    const auto lines = lines_of(
        "step --nproc 2 --tables 3 --rows 40 --dim 16 --batch 8 --pooling 2 --steps 2 --optimizer exact_sgd "
        "--sharding " +
            sharding,
        1);
    expect_fields(lines[0], {"bench", "world", "T", "rows", "D", "B", "L", "sharding", "optimizer", "median_us",
                             "kernel_us", "exchange_us", "copy_us", "messages", "overhead_us", "samples_per_s"});
    expect_values(lines[0], {{"world", 2}, {"sharding", sharding}});
    EXPECT_GT(lines[0].at("samples_per_s"), 0);
    expect_times(lines[0]);
  }
}

TEST(BenchStep, CriteoRows) {
  const auto lines = lines_of("step --nproc 1 --rows criteo:30 --dim 4 --batch 4 --pooling 1 --steps 2", 1);
  expect_values(lines[0], {{"T", 26}, {"rows", "criteo:30"}});
}

TEST(BenchTrain, TwoRanks) {
  const auto lines = lines_of("train --nproc 2 --rows criteo:30 --dim 16 --batch 8 --steps 2 --sharding table_wise", 1);
  expect_fields(lines[0], {"bench", "world", "rows", "D", "B", "sharding", "median_us", "samples_per_s", "stages_us"});
  expect_values(lines[0], {{"bench", "train"}, {"world", 2}});
  EXPECT_GT(lines[0].at("samples_per_s"), 0);
  EXPECT_TRUE(lines[0].at("stages_us").is_object());
  EXPECT_FALSE(lines[0].at("stages_us").empty());
}

TEST(BenchTrain, ListsAreComparedWithOneAnother) {
  const auto lines = lines_of(
      "train --nproc 2 --rows 50 --tables 3 --dim 8,16 --batch 4,8 --steps 2 --sharding table_wise,row_wise "
      "--kernel cpu,reference",
      16);
  for (const json& line : lines) {
    expect_times(line);
    EXPECT_EQ(line.at("verified"), true);
    EXPECT_GT(line.at("loss"), 0);
  }
  EXPECT_EQ(lines[1].at("kernel"), "reference");
  EXPECT_EQ(lines[2].at("sharding"), "row_wise");
  EXPECT_EQ(lines[4].at("B"), 8);
  EXPECT_EQ(lines[8].at("D"), 16);
  EXPECT_NEAR(lines[0].at("loss"), lines[3].at("loss"), 1e-4);
}

// Runs models that the program offers, with their matrix products measured separately.
TEST(BenchTrain, TakesModels) {
  const auto lines = lines_of("train --nproc 2 --batch 16 --steps 2 --model din --sharding table_wise,row_wise", 2);
  for (const json& line : lines) {
    expect_times(line);
    expect_values(line, {{"model", "din"}, {"T", 3}, {"verified", true}});
  }
  EXPECT_NEAR(lines[0].at("loss"), lines[1].at("loss"), 1e-4);
  if (lines[0].contains("sgemm_gflops")) {
    EXPECT_GT(lines[0].at("dense_of_sgemm"), 0);
    EXPECT_GT(lines[0].at("packed_gflops"), 0);
    EXPECT_GT(lines[0].at("dense_of_limit"), 0);
    EXPECT_LE(lines[0].at("dense_of_limit"), lines[0].at("dense_of_sgemm"));
  }
}

TEST(BenchTrain, ComparesPrecisions) {
  const auto lines = lines_of("train --batch 16 --steps 2 --tables 2 --rows 50 --dense-precision float32,auto", 2);
  EXPECT_EQ(lines[0].at("dense_precision"), "float32");
  EXPECT_NEAR(lines[0].at("loss"), lines[1].at("loss"), 1e-2);
}

TEST(BenchTrain, WhatCannotBeIsOneSentence) {
  expect_refused("train", {
                              {"--dim 8,,16", "--dim"},
                              {"--batch 0", "--batch takes whole numbers of at least 1"},
                              {"--sharding ,", "--sharding has an empty item"},
                              {"--model din --dim 8", "--model has its own"},
                              {"--model dni", "cannot read the config file dni"},
                          });
}

TEST(BenchStart, OfASmallJob) {
  const auto lines = lines_of("start --tables 3 --rows 40 --dim 16 --batch 8", 1);
  expect_fields(lines[0], {"T", "E", "D", "B", "threads", "p10_s", "p90_s", "until_exit_s", "floor_s"});
  EXPECT_GT(lines[0].at("median_s"), 0);
  EXPECT_GE(lines[0].at("until_exit_s").get<double>() + 0.02, lines[0].at("median_s").get<double>());
  const Result late = run("start --tables 3 --rows 40 --dim 16 --batch 8 --timeout 1e-9", " 2>&1");
  EXPECT_EQ(late.status, 1) << late.output;
  EXPECT_NE(late.output.find("raise --timeout"), std::string::npos) << late.output;
  EXPECT_EQ(run("start --rows 0", " 2>&1").status, 2);
}

TEST(BenchRead, AnEpochARound) {
  const std::string configs = std::string(TESSERA_CONFIGS) + "/";
  const std::string job = "read --config " + configs + "films.toml --set data.path=" + configs + "films.csv --set ";
  const auto lines = lines_of(job + "data.buffer_mib=0.01", 1);
  expect_fields(lines[0], {"reader", "rows", "B", "streamed", "median_s", "cpu_s", "rows_per_cpu_s", "ids", "open_s"});
  EXPECT_EQ(lines[0].at("rows"), 480);
  EXPECT_TRUE(lines[0].at("streamed").get<bool>());
  EXPECT_GT(lines[0].at("ids"), 3 * 480);
  EXPECT_FALSE(lines_of(job + "data.buffer_mib=9", 1)[0].at("streamed").get<bool>());
  const auto made = lines_of("read --columns 4 --files 3 --samples 100", 1);
  EXPECT_EQ(made[0].at("columns"), 5);  // one is the label
  EXPECT_EQ(made[0].at("ids"), made[0].at("rows"));
  expect_refused("", {{job + "data.batch=8 --files 2", "--files is for made data"},
                      {"read --files 9 --samples 3", "at least --files"}});
}

TEST(BenchScale, RunsAnotherBenchAtEachValue) {
  const auto lines =
      lines_of("scale --bench lookup --grows batch --over 2,4,8 --kernel cpu --tables 1 --rows 50 --exponent 0.5", 3);
  for (size_t i = 0; i < lines.size(); ++i) {
    expect_fields(lines[i], {"of", "grows", "exponent", "figure", "kernel", "pass", "median_us"});
    EXPECT_EQ(lines[i].at("batch"), 2 << i);
  }
  const auto processor = lines_of("scale --bench read --grows columns --over 2,3,4 --samples 20 --figure processor", 3);
  EXPECT_GT(processor[0].at("median_us"), 0);
}

TEST(BenchScale, WhatCannotBeIsOneSentence) {
  expect_refused("scale",
                 {
                     {"", "--bench NAME is needed"},
                     {"--bench lokup --grows rows --over 1,2,3", "the nearest is \"lookup\""},
                     {"--bench lookup --over 1,2,3", "--grows OPTION is needed"},
                     {"--bench lookup --grows rows --over 1,3", "at least three values, ascending"},
                     {"--bench lookup --grows rows --over 1,3,2", "at least three values, ascending"},
                     {"--bench lookup --grows rowz --over 1,2,3", "the nearest is --rows"},
                     {"--bench plan --grows tables --form sizes=8x4 --over 1,2,3", "--form has no {}"},
                     {"--bench read --grows columns --over 1,2,3 --samples 9 --figure open", "have no time \"open\""},
                 });
}

TEST(BenchSave, OfSmallTables) {
  for (const char* ranks : {"1", "2"}) {
    const auto lines =
        lines_of(std::string("save --tables 2 --rows 400 --dim 16 --batch 8 --steps 2 --nproc ") + ranks, 1);
    expect_fields(lines[0], {"world", "T", "D", "B", "gib_per_rank", "median_s", "copy_s", "pace_while_saving",
                             "save_s", "plain_write_s"});
    EXPECT_GT(lines[0].at("save_s"), 0);
  }
  EXPECT_EQ(run("save --steps 0", " 2>&1").status, 2);
}

TEST(BenchPlan, SmallTablesOnEachDevice) {
  const auto lines = lines_of("plan --sizes 40x8,20x16 --device cuda,cpu --local-world-size 4 --torchrec 1", 4);
  for (const json& line : lines) {
    expect_fields(line, {"bench", "tables", "ranks", "device", "fill", "median_s", "p10_s", "p90_s", "bar_s",
                         "busiest_ms", "balance", "greedy_balance", "torchrec_busiest_ms"});
    EXPECT_EQ(line.at("bench"), "plan");
    EXPECT_GT(line.at("median_s"), 0);
    EXPECT_GE(line.at("balance"), 1) << line;
    EXPECT_LE(line.at("busiest_ms"), line.at("torchrec_busiest_ms").get<double>() * 1.000001) << line;
  }
  expect_refused("plan", {{"--sizes 40", "TABLESxRANKS"}});
}

// Four ranks of one machine as two hosts.
TEST(BenchPredict, OnHostsThatALauncherHasStarted) {
  const std::string bench = "LOCAL_RANK=$((RANK % 2)) LOCAL_WORLD_SIZE=2 exec " TESSERA_PROGRAM
                            " bench predict --mixes 8 --network 10Gbit,100us --join always --rounds 1 --json";
  const Result result = run_program("launch -n 4 -- sh -c '" + bench + "'");
  ASSERT_EQ(result.status, 0) << result.output;
  std::vector<json> plans;
  for (const json& line : parsed(result.output)) {
    if (line.at("bench") == "predict") plans.push_back(line);
  }
  ASSERT_EQ(plans.size(), 9u) << result.output;
  for (const json& line : plans) {
    EXPECT_EQ(line.at("ranks"), 4);
    // Headers, rows and gradients, or those of data-parallel tables, and the dense gradients' two exchanges.
    EXPECT_GT(line.at("across_hosts_us"), 4 * 100) << line;
    EXPECT_GT(line.at("bytes_across"), 0) << line;
  }
}

TEST(BenchPredict, WhatCannotBeIsOneSentence) {
  expect_refused("predict", {
                                {"--mixes 7", "whose ranks a launcher has to start"},
                                {"--mixes 99", "there are 1 to 9"},
                                {"--network 1Gbit", "--network is for ranks on several hosts"},
                                {"--join sometimes", "--join sometimes: choose auto, always or never"},
                            });
}

TEST(BenchStep, JoinedAndDirectExchangesAreCompared) {
  const auto lines = lines_of(
      "step --nproc 4 --tables 4 --rows 40 --dim 8 --batch 8 --steps 2 --optimizer exact_sgd --join never,always", 2);
  EXPECT_EQ(lines[0].at("join"), "never");
  EXPECT_EQ(lines[1].at("join"), "always");
  EXPECT_EQ(run("step --join sometimes", " 2>&1").status, 2);
}

TEST(BenchStep, ListsAreComparedWithOneAnother) {
  const auto lines = lines_of(
      "step --nproc 2 --tables 2 --rows 40 --dim 8 --batch 8 --steps 2 --sharding table_wise,row_wise --optimizer "
      "exact_sgd,adam --kernel cpu,reference",
      8);
  EXPECT_EQ(lines[0].at("optimizer"), "exact_sgd");
  EXPECT_EQ(lines[1].at("optimizer"), "adam");
  EXPECT_EQ(lines[2].at("kernel"), "reference");
  EXPECT_EQ(lines[7].at("sharding"), "row_wise");
}

TEST(BenchLookup, OptimizersSideBySide) {
  const auto lines =
      lines_of(std::string(kTinyLookup) + "--pass train,forward --kernel cpu --optimizer exact_sgd,adam", 3);
  EXPECT_EQ(lines[1].at("optimizer"), "adam");
  EXPECT_EQ(lines[2].at("optimizer"), "none");
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder for a session's files.
class BenchSession : public ::testing::Test {
 protected:
  BenchSession() {
    std::ofstream(file("w.toml")) << "bench = \"lookup\"\n[defaults]\ntables = 2\nrows = 50\nbatch = 4\npooling = 3\n"
                                     "pass = [\"forward\", \"limit\"]\n[small]\ndim = 16\n[large]\ndim = 64\n";
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  const tessera::test::TestDirectory folder_;
};

TEST_F(BenchSession, WorkloadsPageAndComparison) {
  const std::string bench = "lookup --rounds 2 --workload " + file("w.toml");
  const Result first = run(bench + " --json --html " + file("a.html") + " > " + file("old.json"));
  ASSERT_EQ(first.status, 0);
  const auto lines = parsed(read(file("old.json")));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].at("workload"), "small");
  expect_values(lines[2], {{"workload", "large"}, {"D", 64}});
  EXPECT_EQ(lines[4].at("bench"), "run");
  EXPECT_GE(lines[4].at("processors"), 1);
  const std::string page = read(file("a.html"));
  EXPECT_NE(page.find("</html>"), std::string::npos);
  EXPECT_NE(page.find("Against the gather limit"), std::string::npos);
  const Result again = run(bench + " --only large --compare " + file("old.json"));
  EXPECT_EQ(again.status, 0);
  EXPECT_NE(again.output.find("2 gone"), std::string::npos) << again.output;
  EXPECT_EQ(again.output.find("another machine"), std::string::npos) << again.output;
}

TEST_F(BenchSession, AFileSaysWhichBenchItIsFor) {
  const Result result = run("run " + file("w.toml") + " --only small --rounds 2 --json");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(parsed(result.output).at(0).at("workload"), "small");
  std::ofstream(file("odd.toml")) << "bench = \"loopup\"\n[a]\n";
  expect_refused("run", {{"", "workload file first"},
                         {file("none.toml"), "cannot read"},
                         {file("odd.toml"), "there is no bench \"loopup\""}});
}

// Alternates two other programs with the bench. One takes 1000 us for whatever it is asked; the other reads the request
// and does not train.
TEST_F(BenchSession, OtherProgramsInTurn) {
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "no python3 here";
  const std::string bench = std::string(TESSERA_PROGRAM) + " bench ";
  const std::string tiny =
      "lookup --tables 2 --rows 50 --dim 16 --batch 4 --pooling 3 --kernel cpu --pass forward,train";
  std::ofstream(file("ant.py")) << "import json, sys\nfor text in sys.stdin:\n    line = json.loads(text)\n"
                                   "    answer = {'median_us': 7.0 * line['B'], 'legs': 6}\n"
                                   "    print('null' if line['pass'] == 'train' else json.dumps(answer), flush=True)\n";
  const std::string turns = TESSERA_SCRIPTS "/bench_in_turns --rounds 3 --lines 2 " + bench + tiny +
                            " -- Sloth sh -c 'while read -r l; do echo 1000; done' -- Ant python3 " + file("ant.py") +
                            " > " + file("both.json");
  ASSERT_EQ(std::system(turns.c_str()), 0);
  const auto lines = parsed(read(file("both.json")));
  ASSERT_EQ(lines.size(), 16u);  // three rounds with two, two and one lines, and the run's line
  expect_values(lines[0], {{"kernel", "cpu"}, {"round", 0}});
  expect_values(lines[2], {{"peer", "Sloth"}, {"round", 0}});
  EXPECT_EQ(lines[3].at("pass"), "train");
  EXPECT_FALSE(lines[2].contains("kernel"));
  expect_values(lines[4], {{"peer", "Ant"}, {"median_us", 28.0}, {"legs", 6}});
  EXPECT_EQ(lines[14].at("round"), 2);
  EXPECT_EQ(lines[15].at("bench"), "run");
  EXPECT_TRUE(lines[15].at("others_percent").is_number());
  const Result shown = run("show " + file("both.json") + " --html " + file("both.html"));
  EXPECT_EQ(shown.status, 0);
  EXPECT_NE(shown.output.find("Sloth's time over this one's "), std::string::npos) << shown.output;
  EXPECT_NE(read(file("both.html")).find("\"Sloth forward\""), std::string::npos);
  const Result beside = run(tiny + " --rounds 2 --json --compare " + file("both.json"));
  EXPECT_EQ(beside.status, 0);
  EXPECT_NE(beside.output.find("Sloth's time over this one's, not interleaved"), std::string::npos) << beside.output;
  EXPECT_NE(beside.output.find("\"compared\""), std::string::npos);
  const Result other = run("lookup --tables 1 --rows 50 --batch 4 --rounds 1 --compare " + file("both.json"), " 2>&1");
  EXPECT_NE(other.output.find("nothing was measured under the circumstances of Sloth"), std::string::npos)
      << other.output;
  EXPECT_EQ(run("show", " 2>&1").status, 2);
  EXPECT_EQ(run("show " + file("none"), " 2>&1").status, 2);
}

TEST_F(BenchSession, ProgramsThatCannotTakeTurnsAreOneSentence) {
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "no python3 here";
  const std::string bench =
      " " TESSERA_PROGRAM " bench lookup --tables 1 --rows 50 --dim 16 --batch 4 --kernel cpu --pass forward ";
  const std::pair<std::string, const char*> cases[] = {
      {bench + "-- Mute sh -c 'read -r l; echo hello'", "Mute answered 'hello': it must be microseconds"},
      {bench + "-- Gone sh -c 'read -r l'", "Gone ended before the last round"},
      {bench + "-- None " + file("none"), "cannot start None"},
      {bench + "-- Alone", "behind each -- another program's name and command"},
      {bench, "behind each -- another program's name and command"},
      {"--rounds 0" + bench + "-- Sloth cat", "must be at least 1"},
  };
  for (const auto& [arguments, named] : cases) {
    const std::string command = TESSERA_SCRIPTS "/bench_in_turns " + arguments + " > " + file("said") + " 2>&1";
    EXPECT_NE(std::system(command.c_str()), 0) << arguments;
    const std::string said = read(file("said"));
    EXPECT_NE(said.find(named), std::string::npos) << said;
    EXPECT_EQ(said.find("Traceback"), std::string::npos) << said;
  }
}

TEST_F(BenchSession, LinesOfForkedRanksReachThePage) {
  const Result result =
      run("step --nproc 2 --tables 2 --rows 40 --dim 8 --batch 8 --steps 2 --rounds 2 --html " + file("s.html"));
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_NE(read(file("s.html")).find("overhead_us"), std::string::npos);
}

TEST_F(BenchSession, WhatCannotBeIsOneSentenceBeforeAnythingIsMeasured) {
  std::ofstream(file("bad.toml")) << "bench = \"lookup\"\n[good]\nrows = 9\n[bad]\nrosw = 9\n";
  std::ofstream(file("old.json")) << "nothing\n";
  expect_refused("lookup", {
                               {"--workload " + file("none.toml"), "cannot read"},
                               {"--workload " + file("bad.toml"), "bad.toml:4: workload bad: "},
                               {"--workload " + file("w.toml") + " --only medium", "it has small, large"},
                               {"--workload " + file("w.toml") + " --round-per-line", "--only"},
                               {"--only small", "--workload"},
                               {"--compare " + file("old.json"), "old.json:1"},
                               {"--html " + file("no/x.html"), "--html: cannot write"},
                               {"--html", "--html"},
                           });
}

// The benches read the shipped workload files. Each run here names a page that cannot be written, which is reported
// after all options are read and before anything is measured.
TEST(BenchWorkloads, ShippedFilesAreRead) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_CONFIGS "/bench")) {
    const std::string stem = entry.path().stem().string();
    const Result result = run(
        stem.substr(0, stem.find('_')) + " --html /no/such/folder/x.html --workload " + entry.path().string(), " 2>&1");
    EXPECT_EQ(result.status, 2) << entry.path();
    EXPECT_NE(result.output.find("--html: cannot write"), std::string::npos) << entry.path() << ": " << result.output;
    ++seen;
  }
  EXPECT_GE(seen, 9);
}

}  // namespace
