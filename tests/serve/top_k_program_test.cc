// Items instead of scores: `tessera serve --top-k` and `tessera predict --top-k` give what plain loops find in the
// vectors of a table, or of a file that `tessera predict --vectors` has written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "served_model.h"
#include "tessera/config.h"

namespace tessera::serve {
namespace {

using test::operator+;
using nlohmann::json;
using test::OwnInput;
using test::Program;
using ::testing::HasSubstr;

constexpr size_t kSamples = 7, kBest = 4, kDim = 8;

// The samples as `tessera predict` reads them, one per line.
std::string samples_file(const ServedModel& model, const OwnInput& input) {
  std::string text;
  std::vector<size_t> next(input.values.size(), 0);
  const size_t wide = input.dense.size() / kSamples;
  const auto joined = [](const auto& values, size_t first, size_t count) {
    std::string out;
    for (size_t i = first; i < first + count; ++i) out += str_cat(i > first ? "," : "", values[i]);
    return out;
  };
  for (size_t s = 0; s < kSamples; ++s) {
    text += "0\t" + joined(input.dense, s * wide, wide);
    for (size_t f = 0; f < input.values.size(); ++f) {
      const auto count = static_cast<size_t>(input.lengths[f][s]);
      text += "\t" + joined(input.values[f], next[f], count);
      next[f] += count;
    }
    text += "\n";
  }
  test::write_text(model.file("samples.tsv"), text);
  return model.file("samples.tsv");
}

class TopK : public testing::Test {
 protected:
  TopK() {
    InferenceModel model = open_packed_model(model_.link());
    model.graph.heads.push_back({"dense_arch", "dense_arch", "none"});
    const auto predictor = make_predictor(runtime_, std::move(model));
    queries_.resize(kSamples * kDim);
    std::vector<std::span<float>> outputs(predictor->model().outputs.size());
    outputs.back() = queries_;
    predictor->predict_outputs(input_.view(), outputs);
  }

  // The best rows of `vectors` for each sample, and their scores, by plain loops.
  std::pair<std::vector<int64_t>, std::vector<float>> best(const std::vector<float>& vectors) const {
    std::pair<std::vector<int64_t>, std::vector<float>> out;
    for (size_t s = 0; s < kSamples; ++s) {
      std::vector<float> scores(vectors.size() / kDim, 0);
      for (size_t i = 0; i < scores.size(); ++i)
        scores[i] = std::inner_product(&vectors[i * kDim], &vectors[i * kDim] + kDim, &queries_[s * kDim], 0.0f);
      std::vector<size_t> order(scores.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
      for (size_t i = 0; i < kBest; ++i) {
        out.first.push_back(static_cast<int64_t>(order[i]));
        out.second.push_back(scores[order[i]]);
      }
    }
    return out;
  }
  std::vector<float> rows_of(const char* table) const {
    const InferenceModel model = open_packed_model(model_.link());
    for (size_t t = 0; t < model.tables.size(); ++t) {
      if (model.description.tables[t].name != table) continue;
      const Tensor rows = dequantize_rows(model.tables[t].rows, model.description.tables[t].format, kDim);
      return {rows.data<float>(), rows.data<float>() + rows.numel()};
    }
    return {};
  }
  // The answer of a server with these options, over `ranks` ranks.
  json asked(const std::vector<std::string>& more, int ranks = 1) {
    std::vector<std::string> args;
    if (ranks > 1) args = {test::tessera_path(), "launch", "-n", std::to_string(ranks), "--"};
    args.insert(args.end(), {test::tessera_path(), "serve", "--model", model_.link(), "--port", "0"});
    if (ranks > 1) args.insert(args.end(), {"--backend", "tcp"});
    args.insert(args.end(), more.begin(), more.end());
    Program program(args);
    Client client(port_of(program));
    const std::string body = json_request(model_.predictor().model(), input_);
    const Reply reply = client.ask(Client::post(kSmall, body));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? json::parse(reply.body)["outputs"] : json();
  }
  static void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5f) << i;
  }

  ServedModel model_;
  Runtime runtime_;
  OwnInput input_{model_.predictor().model(), kSamples, 11};
  std::vector<float> queries_;
};

TEST_F(TopK, TheServerAnswersWithTheBestRowsOfATable) {
  const json outputs = asked({"--top-k", "4", "--items", "film", "--query", "dense_arch"});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0]["name"], "score");
  EXPECT_EQ(outputs[1]["name"], "item");
  EXPECT_EQ(outputs[1]["datatype"], "INT64");
  for (const json& output : outputs) EXPECT_EQ(output["shape"], json::array({kSamples, kBest}));
  const auto [items, scores] = best(rows_of("film"));
  EXPECT_EQ(outputs[1]["data"].get<std::vector<int64_t>>(), items);
  expect_near(outputs[0]["data"].get<std::vector<float>>(), scores);
}

// 41 items: 3 ranks have 14, 14 and 13 of them, fewer than are asked for.
TEST_F(TopK, RanksFindTogetherWhatOneProcessFinds) {
  for (const char* k : {"4", "30"}) {
    const std::vector<std::string> more{"--top-k", k, "--items", "film", "--query", "dense_arch"};
    const json alone = asked(more);
    for (const int ranks : {2, 3}) EXPECT_EQ(asked(more, ranks), alone) << ranks << " ranks, the best " << k;
  }
}

TEST_F(TopK, PredictWritesVectorsAndSearchesThem) {
  const std::string samples = samples_file(model_, input_), vectors = model_.file("items.safetensors");
  const auto predict = [&](std::vector<std::string> more) {
    return test::run_tessera(test::Arguments{"predict", "--model", model_.link(), "--data", samples} + more);
  };
  test::succeed(predict({"--vectors", "dense_arch", "--output", vectors}));
  const test::Finished found =
      predict({"--top-k", "4", "--items", vectors, "--query", "dense_arch", "--output", model_.file("found.csv")});
  ASSERT_EQ(found.status, 0) << found.output;
  const auto [items, scores] = best(queries_);
  const std::vector<std::string> lines = test::lines_of(read_file(model_.file("found.csv")));
  ASSERT_EQ(lines.size(), 1 + kSamples * kBest);
  EXPECT_EQ(lines[0], "row,rank,item,score");
  for (size_t i = 0; i < kSamples * kBest; ++i) {
    const std::string& line = lines[i + 1];
    EXPECT_THAT(line, testing::StartsWith(str_cat(i / kBest, ",", i % kBest + 1, ",", items[i], ",")));
    EXPECT_NEAR(std::stof(line.substr(line.rfind(',') + 1)), scores[i], 1e-5f);
  }
}

#ifdef TESSERA_HNSW
// The index looks at all 41 items, so its answers are the exact ones.
TEST_F(TopK, AnIndexAnswersAndSaysWhatItFinds) {
  const std::vector<std::string> exact{"--top-k", "4", "--items", "film", "--query", "dense_arch"};
  std::vector<std::string> more = exact;
  more.insert(more.end(), {"--index", "hnsw?ef_search=41", "--least-recall", "1"});
  EXPECT_EQ(asked(more), asked(exact));
  const std::string samples = samples_file(model_, input_);
  const auto predict = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"predict", "--model", model_.link(), "--data", samples});
    return test::run_tessera(args);
  };
  for (const bool excludes : {false, true}) {
    std::vector<std::string> left = exact, by_index = more;
    for (std::vector<std::string>* args : {&left, &by_index}) {
      if (excludes) args->insert(args->end(), {"--exclude", "film"});
      args->insert(args->end(), {"--output", model_.file(args == &left ? "exact.csv" : "index.csv")});
    }
    test::succeed(predict(left));
    const std::string done = test::succeed(predict(by_index));
    EXPECT_THAT(done, HasSubstr("the index finds 100.0 % of the 4 best items (41 items as queries), in "));
    EXPECT_EQ(read_file(model_.file("index.csv")), read_file(model_.file("exact.csv")));
  }
}

TEST_F(TopK, AnIndexThatFindsTooLittleIsRefused) {
  const test::Arguments args = test::words("serve --model " + model_.link() +
                                           " --port 0 --top-k 1 --items film --query dense_arch --least-recall 1"
                                           " --index hnsw?m=2&ef_construction=1&ef_search=1");
  test::expect_refused(test::run_tessera(args), HasSubstr("--least-recall 1: the index finds "), 1);
}
#endif

TEST_F(TopK, WrongUseIsOneSentence) {
  const auto refused = [&](std::vector<std::string> more, const char* sentence) {
    test::expect_refused(test::run_tessera(test::Arguments{"serve", "--model", model_.link(), "--port", "0"} + more),
                         HasSubstr(sentence));
  };
  refused({"--top-k", "4"}, "--top-k needs --items: a table of the model, or a file");
  refused({"--items", "film"}, "--items, --query and --exclude need --top-k K");
  refused({"--top-k", "4", "--items", "films", "--query", "dense_arch"},
          "--items: \"films\" is neither a file nor a table of the model, which has film, user, tag, genre");
  refused({"--top-k", "4", "--items", "film", "--query", "dense_arc"},
          "the model has no layer \"dense_arc\" and no such input; the nearest is \"dense_arch\"");
  refused({"--top-k", "4", "--items", "film"}, "name the layer to compare with --query");
  refused({"--top-k", "42", "--items", "film", "--query", "dense_arch"},
          "--top-k 42 is more than the 41 items of film");
  refused({"--index", "hnsw"}, "--index needs --top-k K");
  refused({"--top-k", "4", "--items", "film", "--query", "dense_arch", "--least-recall", "0.9"},
          "--least-recall has no effect without --index NAME: the search is exact");
  refused({"--top-k", "4", "--items", "film", "--query", "dense_arch", "--index", "hsnw"}, "hsnw");
  test::expect_refused(test::run_tessera({"launch", "-n",        "2",          "--",      test::tessera_path(),
                                          "serve",  "--backend", "tcp",        "--model", model_.link(),
                                          "--port", "0",         "--top-k",    "4",       "--items",
                                          "film",   "--query",   "dense_arch", "--index", "hnsw"}),
                       HasSubstr("--index works in one process: leave it out over ranks, which search exactly"));
}

}  // namespace
}  // namespace tessera::serve
