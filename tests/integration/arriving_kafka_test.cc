// tessera train on a topic, over ranks, from librdkafka's mock cluster: each message is trained on once, whatever the
// number of ranks before and behind a checkpoint.
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "arriving_job.h"

namespace tessera::test {
namespace {

using nlohmann::json;

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
    for (int i = first; i < first + count; ++i) {
      std::string row = arriving_row(i);
      ASSERT_EQ(rd_kafka_producev(producer_, RD_KAFKA_V_TOPIC("clicks"), RD_KAFKA_V_PARTITION(i % 3),
                                  RD_KAFKA_V_VALUE(row.data(), row.size()), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                  RD_KAFKA_V_END),
                RD_KAFKA_RESP_ERR_NO_ERROR);
    }
    ASSERT_EQ(rd_kafka_flush(producer_, 20000), RD_KAFKA_RESP_ERR_NO_ERROR);
  }

 private:
  rd_kafka_t* producer_;
  rd_kafka_mock_cluster_t* cluster_;
};

// Nothing is learned: so the loss of each row is its own, wherever batches are cut.
const std::vector<std::string> kNothingLearned = {"table_defaults.optimizer.learning_rate=0",
                                                  "dense_optimizer.learning_rate=0"};

// Their number, and the sum of their losses.
struct Rows {
  int64_t count;
  double loss;
};
Rows rows_of(const json& report) {
  const int64_t count = report["arrived"]["rows"];
  return {count, report["train"]["metrics"]["lifetime_logloss"].get<double>() * static_cast<double>(count)};
}

TEST_F(ArrivingRanks, TrainOnEachMessageOnce) {
  folder_.write("job.toml", kArrivingJob);
  arrive("a.csv", arriving_file(0, kRows));
  arrive("DONE", "");
  const Rows all = rows_of(train(1, kNothingLearned));
  ASSERT_EQ(all.count, kRows);

  Topic topic;
  std::vector<std::string> set = kNothingLearned;
  set.push_back(
      cat("data.reader=\"kafka?end=true&format=csv&columns=", kArrivingColumns, "&brokers=", topic.brokers(), '"'));
  set.emplace_back("data.path=clicks");
  const std::string saved = folder_.file("saved");
  Rows sum{};
  json last;
  for (const int ranks : {2, 3, 1}) {
    topic.send(static_cast<int>(sum.count), kRows / 3);
    // The first two end with a batch that is not the last one: what is behind it was taken and not trained on.
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

}  // namespace
}  // namespace tessera::test
