// The reader kafka: rows from the messages of a topic, by librdkafka. It uses no consumer group: a checkpoint's
// position has the offset of every partition.
#pragma once

#include <librdkafka/rdkafka.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kafka/message.h"
#include "tessera/sdk/draft/arriving.h"

namespace tessera_readers {

struct KafkaFree {
  void operator()(rd_kafka_t* client) const;
  void operator()(rd_kafka_message_t* message) const { rd_kafka_message_destroy(message); }
};
using KafkaClient = std::unique_ptr<rd_kafka_t, KafkaFree>;
using KafkaMessage = std::unique_ptr<rd_kafka_message_t, KafkaFree>;

class Kafka : public tessera::sdk::ArrivingReader {
 public:
  explicit Kafka(const tessera::sdk::Setup& setup);
  const void* extension(std::string_view id) const {
    const void* table = tessera::sdk::arriving_extension<Kafka>(id);
    return table != nullptr ? table : tessera::sdk::skips_extension<Kafka>(id);
  }

  void follow(std::string_view path, std::string_view position) override;
  const std::vector<tessera::sdk::ReaderColumn>& columns() const override { return columns_; }
  void select(std::span<const tessera::sdk::ReaderWant> wants) override;
  tessera::sdk::Arrived next(int64_t most, double wait_s) override;
  std::string position() const override;
  void skip(int64_t row, std::string why);

 private:
  using Clock = std::chrono::steady_clock;

  KafkaClient connect();
  std::vector<int32_t> partitions();
  void begin(std::string_view position);
  KafkaMessage poll(double wait_s);
  void look_after_brokers();
  void refuse(const rd_kafka_message_t& message) const;
  bool add(const rd_kafka_message_t& message);
  void leave_out(int32_t partition, int64_t offset, const std::string& why);
  bool at_ends() const;
  std::string place(int32_t partition) const;

  tessera::sdk::Host host_;
  MessageRows rows_;
  std::string brokers_, settings_, time_;
  double idle_s_, patience_s_;
  bool ends_;             // ends at the messages that existed when it began
  bool newest_;           // without a position, begins after the existing messages
  int64_t bad_messages_;  // number that may be left out
  int64_t left_out_ = 0;
  std::vector<tessera::sdk::ReaderColumn> columns_;
  std::string topic_;
  KafkaClient client_;
  std::map<int32_t, int64_t> offsets_;  // per partition: offset of the next message
  std::map<int32_t, int64_t> last_;     // with ends_: the end of each partition
  KafkaMessage held_;                   // of another partition than the previous rows
  Clock::time_point last_row_;
  bool down_ = false;  // no broker is connected, since:
  Clock::time_point down_since_;
  // The rows of the last next().
  int32_t partition_ = -1;
  int64_t first_ = 0;
  std::string where_;
  std::vector<tsr_reader_values> values_;
  std::vector<double> times_;
};

}  // namespace tessera_readers
