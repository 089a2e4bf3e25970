// A job on CSV files through the reader plugin, from training to predictions, using the program.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tessera/config.h"
#include "tessera_program.h"

namespace tessera::test::csv_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A click follows from the person's and the film's names, and a number.
std::string clicks(int rows) {
  std::string out = "click,price,person,film\n";
  uint32_t random = 1;
  for (int i = 0; i < rows; ++i) {
    const auto below = [&](uint32_t n) { return ((random = random * 1664525u + 1013904223u) >> 16) % n; };
    const uint32_t person = below(40), film = below(25), price = below(10);
    out +=
        str_cat((person % 3 + film % 4 + price / 5) > 3 ? 1 : 0, ",", price, ",person ", person, ",film ", film, "\n");
  }
  return out;
}

const std::string kJob = R"(
job = {device = "cpu", threads = 1}
comm = {backend = "tcp"}
[model]
embedding_dim = 8
bottom_mlp = [8]
top_mlp = [16, 1]
[data]
reader = "csv"
test = "last"
batch = 64
epochs = 2
[[column]]
name = "click"
as = "label"
[[column]]
name = "price"
as = "dense"
transform = ["log1p", "standardise"]
[[column]]
name = ["person", "film"]
ids = "vocabulary"
)";

// Rows are answered before the pipe ends: the second row is sent after the first one's score has come.
void expect_answers_as_rows_come(const TestDirectory& folder, const std::string& model) {
  const std::string answers = folder.write("answers.csv", "");
  const std::string script =
      "{ printf 'film,person,price\\nfilm 3,person 2,9\\n'; "
      "for i in $(seq 500); do grep -q ^0, \"$2\" && break; sleep 0.1; done; "
      "grep -q ^0, \"$2\" && printf 'film 0,nobody,0\\n'; } | \"$0\" predict --model \"$1\" --data - > \"$2\"";
  succeed(run_program({"/bin/sh", "-c", script, tessera_path(), model, answers}, 120));
  EXPECT_THAT(contents(answers), AllOf(HasSubstr("row,score\n0,0.9"), HasSubstr("\n1,0.0")));
}

// A different buffer would shuffle the samples differently, and the model may have been trained on another run's test
// part.
void expect_the_same_data(const std::string& config, const std::string& data, const std::string& saved) {
  for (const auto& [set, sentence] : {std::pair("data.buffer_mib=0.1", "buffer_mib = 0.05 instead of 0.1"),
                                      std::pair("data.buffer_mib=256", "buffer_mib = 0.05 instead of \"larger than"),
                                      std::pair("data.test=random", "test = \"the last 10 % of the rows\" instead")}) {
    expect_refused({"train", "--config", config, "--set", "data.path=" + data, "--set", "data.buffer_mib=0.05", "--set",
                    set, "--load", saved},
                   HasSubstr(sentence));
  }
}

// With random test rows, all rows stay in the order of the file.
void expect_rows_in_order(const TestDirectory& folder, const std::string& model, const std::string& config,
                          const std::string& data) {
  succeed({"predict", "--model", model, "--config", config, "--data", data, "--set", "data.test=random", "--output",
           folder.file("ordered.csv")});
  std::istringstream rows(contents(data)), scores(contents(folder.file("ordered.csv")));
  std::string row, score;
  std::getline(rows, row), std::getline(scores, score);
  for (int i = 0; std::getline(rows, row); ++i) {
    ASSERT_TRUE(std::getline(scores, score));
    ASSERT_EQ(score.substr(0, score.rfind(',')), str_cat(i, ",", row.substr(0, 1)));
  }
}

// The model knows its columns: sends texts in another order, one of which is new.
void expect_scores(const TestDirectory& folder, const std::string& model) {
  const std::string asked =
      folder.write("ask.csv", "film,click,person,price\nfilm 3,1,person 2,9\nfilm 0,0,nobody,0\n");
  const std::string scored = succeed({"predict", "--model", model, "--data", asked});
  EXPECT_THAT(scored, HasSubstr("row,label,score\n0,1,0.9"));
  EXPECT_THAT(scored, HasSubstr("\n1,0,0.0"));
  EXPECT_THAT(scored, HasSubstr("(2 samples) of ask.csv\n"));
  EXPECT_THAT(scored, testing::Not(HasSubstr("vocabulary"))) << "one of two ids is ordinary";
  const std::string strangers = folder.write("strangers.csv", "film,click,person,price\nfilm 3,1,x,9\nfilm 0,0,y,0\n");
  const std::string strange = succeed({"predict", "--model", model, "--data", strangers});
  EXPECT_THAT(strange, HasSubstr("warning: strangers.csv: person: 100 % of the 2 ids were not in the vocabulary"));
  const std::string others = folder.write("others.csv", "film,click,people,price\nfilm 3,1,x,9\n");
  expect_refused({"predict", "--model", model, "--data", others},
                 AllOf(HasSubstr("; the model needs "), HasSubstr("\"person\"")));
}

TEST(CsvJob, TrainsStreamsResumesQuantizesAndPredicts) {
  const TestDirectory folder;
  const std::string data = folder.write("clicks.csv", clicks(6000)), config = folder.write("job.toml", kJob);
  const std::string report = folder.file("report.json"), saved = folder.file("saved"), model = folder.file("model");
  const auto train = [&](const Arguments& more) {
    const Arguments args = Arguments{"train", "--config", config, "--set", "data.path=" + data} +
                           Arguments{"--set", "report.json=" + report, "--set", "data.buffer_mib=0.05"} + more;
    succeed(args);
    return nlohmann::json::parse(contents(report));
  };
  const auto losses = [](const nlohmann::json& of) { return of.at("losses").get<std::vector<double>>(); };
  const nlohmann::json alone = train({"--nproc", "1"});
  EXPECT_GT(alone.at("test").at("auc").get<double>(), 0.9);
  const std::vector<double> whole = losses(alone);
  ASSERT_EQ(whole.size(), 170u);
  train({"--nproc", "2", "--max-steps", "100", "--save", saved});  // in the second epoch
  const nlohmann::json resumed = train({"--nproc", "3", "--load", saved, "--save", folder.file("end")});
  const std::vector<double> rest = losses(resumed);
  ASSERT_EQ(rest.size(), 70u);
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], whole[100 + i], 1e-4 * (1 + whole[100 + i])) << i;
  expect_the_same_data(config, data, saved);
  const std::string packed = succeed({"quantize", "--load", folder.file("end"), "--save", model, "--weights", "fp32",
                                      "--config", config, "--set", "data.path=" + data});
  const std::string auc = str_cat("AUC ", resumed.at("test").at("auc").get<double>()).substr(0, 9);
  EXPECT_THAT(packed, HasSubstr(auc));
  const std::string many = succeed({"quantize", "--load", folder.file("end"), "--save", folder.file("again"),
                                    "--config", config, "--set", "data.path=" + data, "--set", "data.buffer_mib=0.05"});
  EXPECT_THAT(many, HasSubstr("test: auc?bins=1048576 ")) << "of more samples than the buffer holds";
  expect_scores(folder, model);
  // More rows than the buffer holds are judged without being kept.
  EXPECT_THAT(succeed({"predict", "--model", model, "--config", config, "--data", data, "--set", "data.buffer_mib=0.05",
                       "--output", folder.file("scores.csv")}),
              AllOf(HasSubstr("auc?bins=1048576 "), HasSubstr("(6000 samples) of clicks.csv\n")));
  expect_rows_in_order(folder, model, config, data);
  // Sends unlabelled rows by standard input, and rows with errors.
  const auto piped = [&](const std::string& text, const std::string& more = "") {
    const std::string file = folder.write("piped.csv", text), ask = "\"$0\" predict --model \"$1\" --data - ";
    return run_program({"/bin/sh", "-c", "exec " + ask + more + " < \"$2\"", tessera_path(), model, file}, 60);
  };
  EXPECT_THAT(succeed(piped("person,price,film\nperson 2,9,film 3\nnobody,0,film 0\n")),
              AllOf(HasSubstr("row,score\n0,0.9"), HasSubstr("\n1,0.0"), testing::Not(HasSubstr("AUC"))));
  expect_answers_as_rows_come(folder, model);
  expect_refused(piped("person,price,film\nperson 2,cheap,film 3\n"),
                 HasSubstr("standard input, row 1, column \"price\": \"cheap\" is not a number"));
  EXPECT_THAT(piped("person,price,film\nnobody,0,film 0\n", "--part test").output,
              HasSubstr("--part test: there are no such rows in standard input"));
}

// The job above without its reader, on the file `data`.
std::string without_reader(const std::string& data, const std::string& more = "") {
  const std::string job = std::regex_replace(kJob, std::regex("reader = \"csv\"\n"), "path = \"" + data + "\"\n");
  return job + more;
}

TEST(CsvJob, TheReaderFollowsFromTheName) {
  const TestDirectory folder;
  std::string rows = clicks(600);
  std::replace(rows.begin(), rows.end(), ',', ';');
  const std::string data = folder.write("clicks.csv", rows);
  const std::string done = succeed({"train", "--config", folder.write("job.toml", without_reader(data))});
  EXPECT_THAT(done, AllOf(HasSubstr("dlrm on clicks.csv: "), Not(HasSubstr("generated"))));
  const std::string job = folder.file("job.toml");
  const auto refusal = [&](const std::string& setting) {
    const Finished refused = run_tessera({"train", "--config", job, "--set", setting});
    EXPECT_EQ(refused.status, 2) << setting << refused.output;
    return refused.output;
  };
  EXPECT_THAT(refusal("data.reader=synthetic"), HasSubstr("data.path has no effect: the reader \"synthetic\""));
  EXPECT_THAT(refusal("data.samples=50"), HasSubstr("data.samples has no effect: only the reader \"synthetic\""));
  EXPECT_THAT(refusal("data.reader=cvs"), HasSubstr("there is no reader \"cvs\": set data.reader to one of "));
  const std::string other = folder.write("other.csv", "click,price,person,movie\n1,2,a,b\n");
  EXPECT_THAT(refusal("data.path=" + other),
              HasSubstr("other.csv has no column \"film\"; the nearest is \"click\", and "
                        "there are \"click\", "));
}

// Columns may have the same names as the model's layers.
TEST(CsvJob, AnotherModelOverTheSameColumns) {
  const TestDirectory folder;
  std::string rows = clicks(600);
  rows.replace(0, rows.find('\n'), "click,price,first,deep");
  const std::string data = folder.write("clicks.csv", rows);
  std::string job = without_reader(data,
                                   "[[head]]\nname = \"old\"\ninput = \"top\"\nlabel = \"click\"\n[[layer]]\n"
                                   "name = \"top\"\ntype = \"mlp\"\ninputs = \"pooled\"\noptions = { widths = [1] }\n");
  for (const auto& [before, after] :
       std::map<std::string, std::string>{{"\\[\"person\", \"film\"\\]", "[\"first\", \"deep\"]"},
                                          {"bottom_mlp = \\[8\\]\n", ""},
                                          {"top_mlp = .*\n", ""}})
    job = std::regex_replace(job, std::regex(before), after);
  const std::string config = folder.write("job.toml", job);
  succeed({"train", "--config", config, "--model", "deepfm", "--nproc", "2", "--set",
           "layer.deep_layer.options.widths=[8,1]", "--set", "report.json=" + folder.file("report.json")});
  EXPECT_TRUE(nlohmann::json::parse(contents(folder.file("report.json"))).at("layers").contains("fm"));
  succeed({"plan", "--config", config, "--model", "deepfm", "--nproc", "2"});
  const auto refusal = [&](const std::string& model) {
    return test::refused(run_tessera({"train", "--config", config, "--model", model}));
  };
  EXPECT_THAT(refusal("deepfn"), HasSubstr("there is no model \"deepfn\"; the nearest is \"deepfm\""));
  EXPECT_THAT(refusal("two_tower"), AllOf(HasSubstr("takes \"c0\", which this job lacks"), HasSubstr("your columns'")));
  EXPECT_THAT(refusal("mmoe"), HasSubstr("has 2 heads, but the job has 1 column as = \"label\""));
}

TEST(CsvJob, AConfigFromAPipeIsForAllRanks) {
  const TestDirectory folder;
  const std::string data = folder.write("clicks.csv", clicks(600));
  const std::string job = folder.write("job.toml", without_reader(data));
  const std::string train = "\"$0\" train --nproc 2 --config ";
  for (const std::string& command : {"cat \"$1\" | " + train + "/dev/stdin", train + "<(cat \"$1\")",
                                     "mkfifo \"$2\"; cat \"$1\" > \"$2\" & " + train + "\"$2\""}) {
    const std::string done =
        succeed(run_program({"/bin/bash", "-c", command, tessera_path(), job, folder.file("fifo")}, 60));
    EXPECT_THAT(done, HasSubstr("dlrm on clicks.csv: ")) << command;
  }
  expect_refused(run_program({"/bin/sh", "-c", ": | " + train + "/dev/stdin", tessera_path()}, 60),
                 HasSubstr("/dev/stdin is empty"));
}

// Every row has the same two ids, so only their weights tell the label.
TEST(CsvJob, WeightsReachTheLookup) {
  const TestDirectory folder;
  std::string text = "click,x,seen\n";
  for (int i = 0; i < 3000; ++i) {
    const int weight = i * 37 % 100;
    text += str_cat(weight >= 50, ",1,0:", weight / 100.0, " 1:", 1 - weight / 100.0, "\n");
  }
  const std::string data = folder.write("clicks.csv", text), saved = folder.file("saved"), model = folder.file("model");
  const std::string config = folder.write("job.toml", kJob.substr(0, kJob.find("[[column]]")) + R"(
[[column]]
name = "click"
as = "label"
[[column]]
name = "x"
as = "dense"
[[column]]
name = "seen"
rows = 2
separator = " "
weighted = true
)");
  const std::string report = folder.file("report.json");
  succeed({"train", "--config", config, "--nproc", "2", "--set", "data.path=" + data, "--set", "data.epochs=5", "--set",
           "report.json=" + report, "--save", saved});
  EXPECT_GT(nlohmann::json::parse(contents(report)).at("test").at("auc").get<double>(), 0.9);
  succeed({"quantize", "--load", saved, "--save", model, "--weights", "fp32"});
  EXPECT_THAT(succeed({"predict", "--model", model, "--data", data, "--output", folder.file("scores.csv")}),
              testing::AnyOf(HasSubstr("AUC 0.9"), HasSubstr("AUC 1.0")));
  expect_refused(
      run_tessera({"train", "--config", config, "--set", "data.path=" + data, "--set", "table.seen.pooling=mean"}),
      HasSubstr("seen"));
}

TEST(CsvJob, DescribedByLookingAtTheFile) {
  const TestDirectory folder;
  // further columns: a list, a number with many values, and a text that is different in each row
  std::string text = clicks(3000);
  std::string data = "label,\"weight, kg\",session,tags,person,film,price,shop\n";
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  for (int i = 0; std::getline(lines, line); ++i) {
    std::istringstream fields(line);
    std::string click, price, person, film;
    std::getline(std::getline(std::getline(std::getline(fields, click, ','), price, ','), person, ','), film);
    data +=
        str_cat(click, ",", i % 7 ? str_cat(i * 37 % 1000, ".5") : "", ",s", i, ",", i % 3 ? "new|cheap" : "old|new",
                ",", person, ",", film, ",", price, ",shop ", i < 2000 ? i % 100 : i, "\n");
  }
  const std::string path = folder.write("clicks.csv", data), job = folder.file("job.toml");
  succeed({"data", "describe", path, "--output", job});
  const Config config = load_config(job);
  std::map<std::string, ColumnConfig> columns;
  for (const ColumnConfig& c : config.columns) columns[c.name.at(0)] = c;
  ASSERT_EQ(columns.size(), 10u) << "weight, its ranges and if it is missing; price as a number and as an id";
  EXPECT_EQ(columns.at("shop").min_count, 2) << "1000 of 1100 came once";
  EXPECT_EQ(columns.at("film").min_count, 1);
  EXPECT_EQ(columns.at("label").as, "label");
  EXPECT_FALSE(columns.at("label").threshold);
  EXPECT_EQ(columns.at("weight, kg").as, "dense");
  EXPECT_EQ(columns.at("weight, kg").missing, std::optional(NumberOrWord{0, "mean"}));
  EXPECT_EQ(columns.at("tags").separator, "|");
  EXPECT_EQ(columns.at("person").ids, "vocabulary");
  EXPECT_EQ(columns.at("person").separator, "") << "two words are a name here, and no list";
  EXPECT_EQ(columns.at("price").as, "dense");
  EXPECT_EQ(columns.at("price value").ids, "vocabulary") << "ten values: a category as well";
  EXPECT_FALSE(columns.contains("session")) << "every row has another one";
  EXPECT_THAT(contents(job), HasSubstr("# left out because nearly every row has a different value: \"session\""));

  const std::string report = folder.file("report.json");
  succeed({"train", "--config", job, "--set", "job.device=cpu", "--set", "data.epochs=4", "--set", "data.batch=64",
           "--set", "report.json=" + report});
  EXPECT_GT(nlohmann::json::parse(contents(report)).at("test").at("auc").get<double>(), 0.8);
  expect_refused({"data", "describe", path, "--output", job},
                 HasSubstr(job + " exists: write to another file, or remove it first"));
  expect_refused({"data", "describe", path, "--label", "film"},
                 testing::ContainsRegex(
                     "column \"film\" has .* different texts .*, but a label is a number or one of at most 20 words"));
  expect_refused({"data", "describe", path, "--label", "films"},
                 HasSubstr("there is no column \"films\"; did you mean \"film\"? The files have the columns label, "));
  expect_refused({"data", "describe", folder.write("none.csv", "label,film\n")}, HasSubstr("there are no rows"));
  const Finished timed = run_tessera(
      {"data", "describe", folder.write("timed.csv", "label,film,timestamp\n1,a,1700000000\n0,b,1700000009\n")});
  EXPECT_THAT(timed.output, HasSubstr("# The files are in order of \"timestamp\": the newest rows are the test"));
}

TEST(CsvJob, SaysWhichRowsWereTheTest) {
  const TestDirectory folder;
  std::string sorted = "click,price,person,film\n";
  for (int i = 0; i < 1000; ++i) sorted += str_cat(i < 900 ? 0 : 1, ",1,a,b\n");
  const auto train = [&](const std::string& data, const std::string& test) {
    const std::string done = succeed(
        run_tessera({"train", "--config", folder.write("job.toml", kJob), "--set", "data.path=" + data, "--set",
                     "data.test=" + test, "--max-steps", "2", "--set", "report.json=" + folder.file("report.json")}));
    return done;
  };
  const std::string file = folder.write("sorted.csv", sorted);
  const std::string last = train(file, "last"), random = train(file, "\"\"");
  EXPECT_THAT(last,
              HasSubstr("warning: the mean of \"click\" is 0 in the training rows and 1 in the test, which is the "
                        "last 10 % of the rows: the files may be sorted"));
  EXPECT_THAT(last, HasSubstr("test rows: the last 10 % of the rows (100)"));
  EXPECT_THAT(random, testing::Not(HasSubstr("may be sorted")));
  EXPECT_THAT(random, HasSubstr("test rows: 10 % of the rows, random ("));
  EXPECT_EQ(nlohmann::json::parse(contents(folder.file("report.json"))).at("data").at("test_split"),
            "10 % of the rows, random");
  EXPECT_THAT(train(folder.write("mixed.csv", clicks(2000)), "last"), testing::Not(HasSubstr("may be sorted")));
}

// A port on which nothing listens.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// Each rank has its own copy of the data, as on different hosts.
TEST(CsvJob, RanksWithOtherDataEnd) {
  const TestDirectory folder;
  const std::string rows = clicks(3000);
  std::vector<std::string> lines;
  std::istringstream in(rows);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::string backwards = lines[0] + "\n";
  for (size_t i = lines.size() - 1; i > 0; --i) backwards += lines[i] + "\n";
  const std::string first = folder.write("first.csv", rows), config = folder.write("job.toml", kJob);
  const auto run = [&](const std::string& second, const Arguments& more) {
    const std::string port = str_cat(free_port());
    std::vector<std::unique_ptr<Program>> ranks;
    for (const int rank : {0, 1}) {
      ranks.push_back(std::make_unique<Program>(Arguments{tessera_path(), "train", "--config", config, "--max-steps",
                                                          "3", "--set", "data.path=" + (rank == 0 ? first : second)} +
                                                    more,
                                                [&port, rank] {
                                                  setenv("RANK", rank == 0 ? "0" : "1", 1);
                                                  setenv("WORLD_SIZE", "2", 1);
                                                  setenv("LOCAL_RANK", rank == 0 ? "0" : "1", 1);
                                                  setenv("LOCAL_WORLD_SIZE", "2", 1);
                                                  setenv("MASTER_ADDR", "127.0.0.1", 1);
                                                  setenv("MASTER_PORT", port.c_str(), 1);
                                                  setenv("TESSERA_JOB_TOKEN", "0123456789abcdef0123456789abcdef", 1);
                                                }));
    }
    std::vector<Finished> done;
    for (const auto& rank : ranks) {
      const int status = rank->wait(60);
      done.push_back({status, rank->output()});
    }
    return done;
  };
  const std::string other = folder.write("other.csv", backwards), copy = folder.write("copy.csv", rows);
  for (const Finished& rank : run(copy, {})) EXPECT_EQ(rank.status, 0) << rank.output;
  const std::string hashed = "[[column]]\nname = [\"person\", \"film\"]\nids = \"hash\"\nrows = 100\n";
  const auto expect = [&](const std::string& second, const Arguments& more, const std::string& what) {
    for (const Finished& rank : run(second, more)) {
      EXPECT_NE(rank.status, 0) << what;
      EXPECT_THAT(rank.output, HasSubstr("rank 1 reads other data than rank 0: " + what));
    }
  };
  expect(folder.write("fewer.csv", clicks(2990)), {}, "training rows: 2691 instead of 2700");
  expect(other, {}, "the words of \"film\" or their order differ");
  std::string job = kJob;
  job.resize(job.find("transform"));
  folder.write("job.toml", job + hashed);
  expect(other, {}, "the training rows or their order differ");
  expect(other, {"--set", "data.buffer_mib=0.05"}, "the training rows or their order differ");
}

TEST(CsvJob, DescribedWithoutDenseColumns) {
  const TestDirectory folder;
  constexpr int kRows = 12000;  // the reader divides them into three blocks
  std::string text = "user,film,click\n";
  for (int i = 0; i < kRows; ++i) {
    const int user = i * 7 % 1500, film = i / 4000 * 300 + i % 300;
    text += str_cat("someone with a rather long name so that the file has some blocks ", user, ",", film, ",", user % 2,
                    "\n");
  }
  const std::string path = folder.write("clicks.csv", text), job = folder.file("job.toml");
  succeed({"data", "describe", path, "--output", job});
  EXPECT_THAT(contents(job), HasSubstr("from all 12000 rows"));
  EXPECT_THAT(contents(job), HasSubstr("# 1500 different, most often "));
  const std::string report = folder.file("report.json");
  succeed({"train", "--config", job, "--set", "data.epochs=3", "--set", "report.json=" + report});
  EXPECT_GT(nlohmann::json::parse(contents(report)).at("test").at("auc").get<double>(), 0.9);
}

// The sizes that the columns need are known before there is a plan.
TEST(CsvJob, TablesThatAreTooSmallAreToldAtOnce) {
  const TestDirectory folder;
  const std::string data = folder.write("clicks.csv", clicks(2000)), config = folder.write("job.toml", kJob);
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--config", config, "--set", "data.path=" + data});
    return run_tessera(more);
  };
  const std::string says =
      "table \"person\" has 5 rows, but column \"person\" has 41 ids: set the table's rows to 41 or more, leave "
      "them out, or hash the column to fewer (ids = \"hash\", rows = 5)";
  for (const char* command : {"train", "plan"}) {
    const Finished refused = run({command, "--set", "table.person.rows=5"});
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(says)) << command;
  }
  EXPECT_EQ(run({"train", "--set", "table.person.rows=41"}).status, 0);
  succeed(run({"train", "--set", "table.person.rows=5", "--set", "table_defaults.bounds_check=warning"}));
  std::string hashed = kJob;
  hashed.replace(hashed.find("\"vocabulary\""), 12, "\"hash\"\nrows = 1000");
  folder.write("job.toml", hashed);
  expect_refused(run({"train", "--set", "table.film.rows=999"}),
                 HasSubstr("table \"film\" has 999 rows, but column \"film\" has 1000 ids: "));
}

// The clicks as Parquet, in row groups of 500, with a list of two words per row.
constexpr const char* kToParquet = R"(
import sys, pyarrow as pa, pyarrow.csv, pyarrow.parquet
t = pyarrow.csv.read_csv(sys.argv[1])
words = [["all", p[-1]] for p in t["person"].to_pylist()]
t = t.set_column(3, "film", t["film"].dictionary_encode()).append_column("words", pa.array(words))
pyarrow.parquet.write_table(t, sys.argv[2], row_group_size=500)
)";

TEST(CsvJob, ParquetWhereThereIsArrow) {
  const TestDirectory folder;
  const std::string built_with = TESSERA_ARROW_PYTHON, python = built_with.empty() ? "python3" : built_with;
  const std::string text = folder.write("clicks.csv", clicks(6000));
  const std::string data = folder.file("clicks.parquet"), report = folder.file("report.json");
  const std::string job =
      folder.write("job.toml", kJob + "[[column]]\nname = \"words\"\nids = \"vocabulary\"\npooling = \"mean\"\n");
  const auto train = [&](const std::string& ranks, const std::string& mib) {
    return run_tessera({"train", "--config", job, "--nproc", ranks, "--set", "data.reader=parquet", "--set",
                        "data.path=" + data, "--set", "data.buffer_mib=" + mib, "--set", "report.json=" + report});
  };
  if (run_program({python, "-c", "import pyarrow"}, 60).status != 0) {
    folder.write("clicks.parquet", "PAR1");
    expect_refused(train("1", "9"), HasSubstr("pip install pyarrow"));
    return;
  }
  succeed(run_program({python, folder.write("to_parquet.py", kToParquet), text, data}, 60));
  std::vector<std::vector<double>> losses;
  for (const std::string ranks : {"1", "3"}) {  // streamed: row groups are divided among the ranks
    succeed(train(ranks, "0.1"));
    const auto json = nlohmann::json::parse(contents(report));
    EXPECT_GT(json.at("test").at("auc").get<double>(), 0.9);
    losses.push_back(json.at("losses").get<std::vector<double>>());
  }
  ASSERT_EQ(losses[0].size(), losses[1].size());
  for (size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-4) << i;
  const std::string described = succeed({"data", "describe", data});
  EXPECT_THAT(described, HasSubstr("reader = \"parquet\""));
  EXPECT_THAT(described, HasSubstr("name = \"words\"\nids = \"vocabulary\"\npooling = \"mean\"\n"));
}

TEST(CsvJob, TheExampleTrains) {
  const TestDirectory folder;
  const std::string report = folder.file("report.json");
  const std::string configs = std::string(TESSERA_SOURCE_DIR) + "/configs/";
  succeed({"train", "--config", configs + "films.toml", "--set", "data.path=" + configs + "films.csv", "--set",
           "report.json=" + report});
  EXPECT_GT(nlohmann::json::parse(contents(report)).at("test").at("auc").get<double>(), 0.8);
}

}  // namespace
}  // namespace tessera::test::csv_test
