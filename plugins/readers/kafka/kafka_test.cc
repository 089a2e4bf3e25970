// Tests the reader kafka against librdkafka's mock cluster.
#include "kafka/kafka.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <librdkafka/rdkafka_mock.h>

#include <set>

#include "arriving_component.h"

namespace tessera_readers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const tsr_component kKafka = tessera::sdk::component<Kafka>({.id = "kafka", .version = "1", .about = "it"});

class KafkaTest : public testing::Test {
 protected:
  KafkaTest() {
    char why[256];
    rd_kafka_conf_t* conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", nullptr, 0);
    producer_ = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof(why));
    cluster_ = rd_kafka_mock_cluster_new(producer_, 1);
    brokers_ = rd_kafka_mock_cluster_bootstraps(cluster_);
    rd_kafka_brokers_add(producer_, brokers_.c_str());
    rd_kafka_mock_topic_create(cluster_, "clicks", 2, 1);
  }
  ~KafkaTest() override {
    rd_kafka_flush(producer_, 5000);
    rd_kafka_mock_cluster_destroy(cluster_);
    rd_kafka_destroy(producer_);
  }
  void send(int32_t partition, const std::string& text, int64_t time_ms = 0) {
    std::string copy = text;
    ASSERT_EQ(rd_kafka_producev(producer_, RD_KAFKA_V_TOPIC("clicks"), RD_KAFKA_V_PARTITION(partition),
                                RD_KAFKA_V_VALUE(copy.data(), copy.size()), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                RD_KAFKA_V_TIMESTAMP(time_ms), RD_KAFKA_V_END),
              RD_KAFKA_RESP_ERR_NO_ERROR);
    ASSERT_EQ(rd_kafka_flush(producer_, 10000), RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  std::string options(const std::string& more = "") const { return "{\"brokers\": \"" + brokers_ + "\"" + more + "}"; }
  std::unique_ptr<ArrivingComponent> part(const std::string& more = "", const std::string& position = "") const {
    auto out = std::make_unique<ArrivingComponent>(kKafka, options(more));
    out->follow("clicks", position);
    out->select({want("id", TSR_READER_INT64), want("tags", TSR_READER_TEXT, TSR_READER_LIST)});
    return out;
  }

  rd_kafka_t* producer_;
  rd_kafka_mock_cluster_t* cluster_;
  std::string brokers_;
};

TEST_F(KafkaTest, JsonObjectsByTheNamesOfColumns) {
  send(0, R"({"id": 1, "tags": ["a", "b"], "other": {}})", 1500);
  send(0, R"({"id": "2", "tags": "c d"})", 2500);
  send(0, R"({"tags": []})", 3500);
  const auto reader = part(R"(, "end": true)");
  std::vector<std::string> rows;
  std::vector<double> times;
  for (auto got = reader->next(10, 20); !got.last; got = reader->next(10, 20)) {  // as they are fetched
    ASSERT_FALSE(got.rows.empty());
    EXPECT_EQ(got.where, "topic clicks, partition 0");
    EXPECT_EQ(got.first, std::ssize(rows));
    rows.insert(rows.end(), got.rows.begin(), got.rows.end());
    times.insert(times.end(), got.times.begin(), got.times.end());
  }
  EXPECT_THAT(rows, ElementsAre("1|a b", "2|c d", "-|"));
  EXPECT_THAT(times, ElementsAre(1.5, 2.5, 3.5));
}

TEST_F(KafkaTest, CsvRecordsAndAColumnOfTimes) {
  send(1, "7,\"x y\",1970-01-01T00:01\r\n");
  const auto reader = part(R"(, "format": "csv", "columns": "id,tags,at", "time": "at")");
  const auto got = reader->next(10, 20);
  EXPECT_THAT(got.rows, ElementsAre("7|x y"));
  EXPECT_THAT(got.times, ElementsAre(60.0));
  EXPECT_THAT(failure([&] { part(R"(, "format": "csv", "columns": "ids,tags")"); }),
              HasSubstr("has no \"id\"; the nearest is \"ids\""));
}

// Each message is read once, wherever reading was interrupted.
TEST_F(KafkaTest, PositionsAreExactOverPartitions) {
  for (int i = 0; i < 6; ++i) send(i % 2, "{\"id\": " + std::to_string(i) + "}");
  std::multiset<std::string> all;
  std::string position;
  for (int i = 0; i < 6; ++i) {
    const auto reader = part(R"(, "end": true)", position);
    const auto got = reader->next(1, 20);
    ASSERT_EQ(got.rows.size(), 1u);
    all.insert(got.rows[0]);
    position = reader->position();
  }
  EXPECT_THAT(all, ElementsAre("0|", "1|", "2|", "3|", "4|", "5|"));
  EXPECT_TRUE(part(R"(, "end": true)", position)->next(1, 20).last);
  EXPECT_THAT(failure([&] { part("", R"({"topic": "clicks", "offsets": {"0": 99}})"); }),
              HasSubstr("the next messages are gone"));
  EXPECT_THAT(failure([&] { part("", R"({"topic": "views", "offsets": {}})"); }), HasSubstr("is of topic views"));
}

TEST_F(KafkaTest, WhatIsWrongNamesTheMessage) {
  send(0, R"({"id": "x"})");
  EXPECT_THAT(failure([&] { (void)part()->next(10, 20); }),
              HasSubstr("topic clicks, partition 0, offset 0: column \"id\": \"x\" is not a whole number"));
  send(1, "no object");
  const auto other = part("", R"({"topic": "clicks", "offsets": {"0": 1}})");
  EXPECT_THAT(failure([&] { (void)other->next(10, 20); }),
              HasSubstr("partition 1, offset 0: the message is not a JSON object"));
  EXPECT_THAT(failure([&] { ArrivingComponent(kKafka, options()).follow("click"); }),
              HasSubstr("no topic \"click\" at " + brokers_ + "; the nearest is \"clicks\""));
  EXPECT_THAT(failure([&] { ArrivingComponent(kKafka, "{}"); }), HasSubstr("kafka needs brokers=host:port"));
}

TEST_F(KafkaTest, BadMessagesAreLeftOutAndSaid) {
  ArrivingComponent::warnings().clear();
  for (const char* text : {"no object", R"({"id": 1})", R"({"id": 2, "tags": [{}]})", R"({"id": 3})"}) send(0, text);
  const auto reader = part(R"(, "bad_messages": 2, "end": true)");
  std::vector<std::string> rows;
  std::vector<int64_t> offsets;
  for (auto got = reader->next(10, 20); !got.last; got = reader->next(10, 20)) {
    ASSERT_EQ(got.rows.size(), 1u);
    rows.insert(rows.end(), got.rows.begin(), got.rows.end());
    offsets.push_back(got.first);
  }
  EXPECT_THAT(rows, ElementsAre("1|", "3|"));
  EXPECT_THAT(offsets, ElementsAre(1, 3));
  const std::string where = "topic clicks, partition 0, offset ";
  EXPECT_THAT(
      ArrivingComponent::warnings(),
      ElementsAre(where + "0: the message is not a JSON object; it is left out, as 1 of at most 2",
                  where + "2: column \"tags\": is neither a number nor a text; it is left out, as 2 of at most 2"));
  EXPECT_THAT(reader->position(), HasSubstr(R"("left_out":2)"));
  // Messages left out before a position count.
  send(0, R"({"id": "x"})");
  const auto on = part(R"(, "bad_messages": 2, "end": true)", reader->position());
  EXPECT_THAT(
      failure([&] { (void)on->next(10, 20); }),
      HasSubstr("offset 4: column \"id\": \"x\" is not a whole number; kafka's option bad_messages says how many "
                "such messages are left out (now 2)"));
  const auto further = part(R"(, "bad_messages": 3, "end": true)", reader->position());
  EXPECT_TRUE(further->next(10, 20).last);
  EXPECT_THAT(further->position(), HasSubstr(R"("left_out":3)"));
  EXPECT_THAT(failure([&] { part(R"(, "bad_messages": -1)"); }), HasSubstr("bad_messages counts messages: 0 or more"));
}

// Columns may refuse values that the reader accepts.
TEST_F(KafkaTest, RowsAreLeftOutByWhoeverRefusesThem) {
  ArrivingComponent::warnings().clear();
  for (const char* text : {R"({"id": 1})", R"({"id": 2})"}) send(1, text);
  const auto reader = part(R"(, "bad_messages": 1, "end": true)");
  ASSERT_EQ(reader->next(1, 20).rows.size(), 1u);
  ASSERT_EQ(reader->next(10, 20).rows.size(), 1u);
  reader->skip(0, "topic clicks, partition 1, row 2, column \"id\": why");
  EXPECT_THAT(ArrivingComponent::warnings(),
              ElementsAre("topic clicks, partition 1, offset 1: column \"id\": why; it is left out, as 1 of at most "
                          "1"));
  EXPECT_THAT(failure([&] { reader->skip(0, "again"); }), HasSubstr("offset 1: again; kafka's option bad_messages"));
}

TEST_F(KafkaTest, BeginsWithTheNewest) {
  send(0, R"({"id": 1})");
  const auto reader = part(R"(, "start": "newest")");
  EXPECT_THAT(reader->next(10, 0.2).rows, IsEmpty());
  send(0, R"({"id": 2})");
  send(1, R"({"id": 3})");
  std::multiset<std::string> rows;
  while (rows.size() < 2) {
    const auto got = reader->next(10, 20);
    ASSERT_FALSE(got.rows.empty());
    rows.insert(got.rows.begin(), got.rows.end());
  }
  EXPECT_THAT(rows, ElementsAre("2|", "3|"));
  // With a position, "start" does not matter.
  const auto on = part(R"(, "start": "newest")", R"({"topic": "clicks", "offsets": {"0": 0, "1": 1}})")->next(1, 20);
  EXPECT_THAT(on.rows, ElementsAre("1|"));
  EXPECT_THAT(failure([&] { part(R"(, "start": "latest")"); }), HasSubstr("must be oldest or newest"));
}

TEST_F(KafkaTest, IdleTimeEnds) { EXPECT_TRUE(part(R"(, "idle_s": 0.05)")->next(10, 0.3).last); }

TEST_F(KafkaTest, BrokersThatAreGoneAreOneSentence) {
  const auto reader = part(R"(, "patience_s": 0.2)");
  EXPECT_THAT(reader->next(10, 0).rows, IsEmpty());
  rd_kafka_mock_broker_set_down(cluster_, 1);
  const std::string why = failure([&] {
    for (int i = 0; i < 100; ++i) (void)reader->next(10, 0.2);
  });
  EXPECT_THAT(why, HasSubstr("kafka: no broker answers at " + brokers_));
  EXPECT_THAT(failure([&] { ArrivingComponent(kKafka, options(R"(, "patience_s": 0.1)")).follow("clicks"); }),
              HasSubstr("no broker answers"));
}

}  // namespace
}  // namespace tessera_readers
