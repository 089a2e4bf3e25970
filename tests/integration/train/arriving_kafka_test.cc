// tessera train on a topic of librdkafka's mock cluster, over ranks: each message is trained on once, whatever the
// number of ranks before and after a checkpoint.
#include <gmock/gmock.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "arriving_job.h"

namespace tessera::test::arriving_kafka_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ArrivingFromKafka : public ArrivingRanks {};

constexpr int kRows = 240;

class Topic {
 public:
  Topic() {
    std::string why(256, '\0');
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", nullptr, 0);
    producer_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why.data(), why.size());
    cluster_ = rd_kafka_mock_cluster_new(producer_, 1);
    rd_kafka_brokers_add(producer_, brokers().c_str());
    rd_kafka_mock_topic_create(cluster_, "clicks", 3, 1);
  }
  ~Topic() {
    rd_kafka_mock_cluster_destroy(cluster_);
    rd_kafka_destroy(producer_);
  }
  Topic(const Topic&) = delete;
  Topic& operator=(const Topic&) = delete;

  std::string brokers() const { return rd_kafka_mock_cluster_bootstraps(cluster_); }
  void send(int first, int count) {
    for (int i = first; i < first + count; ++i) put(i % 3, arriving_row(i));
    flush();
  }
  void put(int32_t partition, std::string row) {
    ASSERT_EQ(rd_kafka_producev(producer_, RD_KAFKA_V_TOPIC("clicks"), RD_KAFKA_V_PARTITION(partition),
                                RD_KAFKA_V_VALUE(row.data(), row.size()), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                RD_KAFKA_V_END),
              RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  void flush() { ASSERT_EQ(rd_kafka_flush(producer_, 20000), RD_KAFKA_RESP_ERR_NO_ERROR); }

 private:
  rd_kafka_t* producer_;
  rd_kafka_mock_cluster_t* cluster_;
};

// Learning rates are 0, so the loss of each row is its own, however batches are cut.
const std::vector<std::string> kNothingLearned = {"table_defaults.optimizer.learning_rate=0",
                                                  "dense_optimizer.learning_rate=0"};

// The number of rows, and the sum of their losses.
struct Rows {
  int64_t count;
  double loss;
};
Rows rows_of(const json& report) {
  const int64_t count = report["arrived"]["rows"];
  return {count, report["train"]["metrics"]["lifetime_logloss"].get<double>() * static_cast<double>(count)};
}

TEST_F(ArrivingFromKafka, TrainOnEachMessageOnce) {
  folder_.write("job.toml", kArrivingJob);
  arrive("a.csv", arriving_file(0, kRows));
  arrive("DONE", "");
  const Rows all = rows_of(train(1, kNothingLearned));
  ASSERT_EQ(all.count, kRows);

  Topic topic;
  std::vector<std::string> set = kNothingLearned;
  set.push_back(
      str_cat("data.reader=\"kafka?end=true&format=csv&columns=", kArrivingColumns, "&brokers=", topic.brokers(), '"'));
  set.emplace_back("data.path=clicks");
  const std::string saved = folder_.file("saved");
  Rows sum{};
  json last;
  for (const int ranks : {2, 3, 1}) {
    topic.send(static_cast<int>(sum.count), kRows / 3);
    // The first two runs end with a batch that is not the last one: rows after it were taken but not trained on.
    last = train(ranks, set, {"--save", saved, "--resume"});
    ASSERT_FALSE(HasFailure());
    const Rows part = rows_of(last);
    EXPECT_EQ(part.count, kRows / 3) << ranks << " ranks";
    sum = {sum.count + part.count, sum.loss + part.loss};
  }
  EXPECT_EQ(sum.count, kRows);
  EXPECT_NEAR(sum.loss, all.loss, 1e-4);
  EXPECT_EQ(last["arrived"]["position"]["offsets"], json::parse(R"({"0": 80, "1": 80, "2": 80})"));
}

// A message that is not a row, one without a valid label, and one whose id has no row end the training, unless an
// option says how many may be left out. The model then reads files.
TEST_F(ArrivingFromKafka, GoOnBehindBadMessages) {
  folder_.write("job.toml", kArrivingJob);
  Topic topic;
  topic.send(0, 60);
  topic.put(0, "no,row");
  topic.put(1, "7,1,1,film1:1,1");
  topic.put(2, "1,1,40,film1:1,1");
  topic.send(60, 60);
  const std::string saved = folder_.file("saved");
  const auto set = [&](const std::string& more) -> std::vector<std::string> {
    return {str_cat("data.reader=\"kafka?end=true&format=csv&columns=", kArrivingColumns, "&brokers=", topic.brokers(),
                    more, '"'),
            "data.path=clicks"};
  };
  const Finished refused = run_tessera(arguments(2, set(""), {"--save", saved, "--save-every", "1"}));
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(
      refused.output,
      testing::AllOf(HasSubstr("offset 20: "),
                     HasSubstr("kafka's option bad_messages says how many such messages are left out (now 0)")));
  const std::string done = succeed(run_tessera(arguments(2, set("&bad_messages=3"), {"--save", saved, "--resume"})));
  EXPECT_THAT(done, HasSubstr("topic clicks, partition 0, offset 20: the message has 2 fields"));
  EXPECT_THAT(done, HasSubstr("topic clicks, partition 1, offset 20: column \"click\": "));
  EXPECT_THAT(done, HasSubstr("topic clicks, partition 2, offset 20: "));
  const json position = report()["arrived"]["position"];
  EXPECT_EQ(position["offsets"], json::parse(R"({"0": 41, "1": 41, "2": 41})"));
  EXPECT_EQ(position["left_out"], 3);

  const std::string model = folder_.file("model"), file = folder_.write("ask.csv", arriving_file(0, 3));
  succeed({"quantize", "--load", saved, "--save", model, "--weights", "fp32"});
  expect_refused({"predict", "--model", model, "--data", file},
                 HasSubstr("have no end: use --reader csv, or another reader of files"));
  const std::string scored = succeed({"predict", "--model", model, "--data", file, "--reader", "csv"});
  EXPECT_THAT(scored, HasSubstr("row,label,score\n0,1,"));
}

}  // namespace
}  // namespace tessera::test::arriving_kafka_test
