#include "kafka/kafka.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera/sdk/nearest.h"

namespace tessera_readers {
namespace {

using tessera::sdk::Arrived;
using tessera::sdk::fail;
using tessera::sdk::Options;

constexpr int kAskMs = 2000;  // limit of one request to the brokers

// Splits "a,b" into a and b.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) out.push_back(one);
  return out;
}

MessageRows rows_of(Options& options) {
  const std::string format = options.string("format", "json");
  std::vector<std::string> fields = split(options.string("columns", ""));
  const std::string delimiter = options.string("delimiter", ",");
  if (format != "json" && format != "csv")
    fail(TSR_INVALID_ARGUMENT, "kafka: format is \"", format, "\", but must be json or csv");
  if ((format == "csv") == fields.empty())
    fail(TSR_INVALID_ARGUMENT,
         format == "csv" ? "kafka: format=csv needs columns=a,b,c, the names of a message's fields in order"
                         : "kafka: \"columns\" has no effect on JSON objects: leave it out, or set format=csv");
  if (delimiter.size() != 1) fail(TSR_INVALID_ARGUMENT, "kafka: delimiter must be one character");
  return {std::move(fields), delimiter[0]};
}

bool is_newest(const std::string& start) {
  if (start != "oldest" && start != "newest")
    fail(TSR_INVALID_ARGUMENT, "kafka: start is \"", start, "\", but must be oldest or newest");
  return start == "newest";
}

void set(rd_kafka_conf_t* conf, const std::string& key, const std::string& value) {
  char why[256];
  if (rd_kafka_conf_set(conf, key.c_str(), value.c_str(), why, sizeof(why)) != RD_KAFKA_CONF_OK)
    fail(TSR_INVALID_ARGUMENT, "kafka: ", key, ": ", why);
}

// Reads key=value lines; # begins a comment.
void set_all(rd_kafka_conf_t* conf, const std::string& file) {
  if (file.empty()) return;
  std::ifstream in(file);
  if (!in) fail(TSR_NOT_FOUND, "kafka: there is no file ", file, " with librdkafka's settings");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == std::string::npos) fail(TSR_INVALID_ARGUMENT, "kafka: ", file, " has a line that is not key=value");
    set(conf, line.substr(0, equals), line.substr(equals + 1));
  }
}

using Configuration = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;
using Partitions = std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;

}  // namespace

void KafkaFree::operator()(rd_kafka_t* client) const {
  rd_kafka_consumer_close(client);
  rd_kafka_destroy(client);
}

Kafka::Kafka(const tessera::sdk::Setup& setup)
    : host_(setup.host),
      rows_(rows_of(setup.options)),
      brokers_(setup.options.string("brokers", "")),
      settings_(setup.options.string("settings", "")),
      time_(setup.options.string("time", "")),
      idle_s_(setup.options.number("idle_s", 0)),
      patience_s_(setup.options.number("patience_s", 20)),
      ends_(setup.options.flag("end", false)),
      newest_(is_newest(setup.options.string("start", "oldest"))),
      bad_messages_(setup.options.integer("bad_messages", 0)) {
  if (brokers_.empty()) fail(TSR_INVALID_ARGUMENT, "kafka needs brokers=host:port, or several separated by commas");
  if (!(idle_s_ >= 0 && patience_s_ >= 0))
    fail(TSR_INVALID_ARGUMENT, "kafka: idle_s and patience_s count seconds: 0 or more");
  if (bad_messages_ < 0) fail(TSR_INVALID_ARGUMENT, "kafka: bad_messages counts messages: 0 or more");
  for (const std::string& field : rows_.fields()) columns_.push_back({field});
}

KafkaClient Kafka::connect() {
  Configuration conf(rd_kafka_conf_new(), &rd_kafka_conf_destroy);
  set_all(conf.get(), settings_);
  set(conf.get(), "bootstrap.servers", brokers_);
  set(conf.get(), "group.id", "tessera");  // required by the client, but the group is never joined
  set(conf.get(), "enable.auto.commit", "false");
  set(conf.get(), "enable.auto.offset.store", "false");
  set(conf.get(), "auto.offset.reset", "error");
  set(conf.get(), "reconnect.backoff.max.ms", "2000");
  set(conf.get(), "fetch.wait.max.ms", "100");
  rd_kafka_conf_set_log_cb(conf.get(), [](const rd_kafka_t*, int, const char*, const char*) {});
  rd_kafka_conf_set_opaque(conf.get(), this);
  rd_kafka_conf_set_error_cb(conf.get(), [](rd_kafka_t*, int code, const char*, void* self) {
    auto& kafka = *static_cast<Kafka*>(self);
    if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || kafka.down_) return;
    kafka.down_ = true;
    kafka.down_since_ = Clock::now();
  });
  char why[256];
  rd_kafka_t* client = rd_kafka_new(RD_KAFKA_CONSUMER, conf.get(), why, sizeof(why));
  if (client == nullptr) fail(TSR_INVALID_ARGUMENT, "kafka: ", why);
  (void)conf.release();  // now owned by the client
  rd_kafka_poll_set_consumer(client);
  return KafkaClient(client);
}

std::string Kafka::place(int32_t partition) const {
  return "topic " + topic_ + ", partition " + std::to_string(partition);
}

std::vector<int32_t> Kafka::partitions() {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const rd_kafka_metadata_t* found = nullptr;
    const rd_kafka_resp_err_t code = rd_kafka_metadata(client_.get(), 1, nullptr, &found, kAskMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
      if (Clock::now() - begin < std::chrono::duration<double>(patience_s_)) continue;
      fail(TSR_UNAVAILABLE, "kafka: no broker answers at ", brokers_, " (", rd_kafka_err2str(code), "), after ",
           patience_s_, " s");
    }
    const std::unique_ptr<const rd_kafka_metadata_t, decltype(&rd_kafka_metadata_destroy)> all(
        found, &rd_kafka_metadata_destroy);
    std::vector<std::string> names;
    for (int t = 0; t < all->topic_cnt; ++t) {
      const rd_kafka_metadata_topic& topic = all->topics[t];
      names.emplace_back(topic.topic);
      if (names.back() != topic_) continue;
      std::vector<int32_t> out;
      for (int p = 0; p < topic.partition_cnt; ++p) out.push_back(topic.partitions[p].id);
      return out;
    }
    fail(TSR_NOT_FOUND, "kafka: there is no topic \"", topic_, "\" at ", brokers_,
         tessera::sdk::nearest_text(topic_, names));
  }
}

void Kafka::follow(std::string_view path, std::string_view position) {
  topic_ = path;
  held_.reset();
  client_ = connect();
  begin(position);
  last_row_ = Clock::now();
}

void Kafka::begin(std::string_view position) {
  offsets_.clear();
  last_.clear();
  left_out_ = 0;
  std::map<int32_t, int64_t> saved;
  if (!position.empty()) {
    const auto j = nlohmann::json::parse(position, nullptr, false);
    const bool good = j.is_object() && j.contains("topic") && j["topic"].is_string() && j.contains("offsets") &&
                      j["offsets"].is_object();
    if (!good) fail(TSR_DATA_LOSS, "\"", position, "\" is not a position of the reader kafka");
    if (j["topic"] != topic_)
      fail(TSR_INVALID_ARGUMENT, "the position is of topic ", j["topic"].get<std::string>(), ", but data.path is ",
           topic_, ": continue with the same topic");
    for (const auto& [partition, offset] : j["offsets"].items()) {
      if (!offset.is_number_integer()) fail(TSR_DATA_LOSS, "\"", position, "\" is not a position of the reader kafka");
      saved[std::atoi(partition.c_str())] = offset;
    }
    if (j.contains("left_out") && j["left_out"].is_number_integer()) left_out_ = j["left_out"];
  }
  const std::vector<int32_t> all = partitions();
  const Partitions wanted(rd_kafka_topic_partition_list_new(static_cast<int>(all.size())),
                          &rd_kafka_topic_partition_list_destroy);
  for (const int32_t p : all) {
    int64_t low = 0, high = 0;
    const auto code = rd_kafka_query_watermark_offsets(client_.get(), topic_.c_str(), p, &low, &high, kAskMs);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) fail(TSR_UNAVAILABLE, "kafka: ", place(p), ": ", rd_kafka_err2str(code));
    const auto at = saved.find(p);
    if (at != saved.end() && (at->second < low || at->second > high))
      fail(TSR_DATA_LOSS, "kafka: ", place(p), " has offsets ", low, " to ", high, ", but the position is at ",
           at->second, ": the next messages are gone");
    // A partition that was added after the position was saved is read from its start.
    const int64_t first = newest_ && position.empty() ? high : low;
    offsets_[p] = at == saved.end() ? first : at->second;
    if (ends_) last_[p] = high;
    rd_kafka_topic_partition_list_add(wanted.get(), topic_.c_str(), p)->offset = offsets_[p];
  }
  if (const auto code = rd_kafka_assign(client_.get(), wanted.get()); code != RD_KAFKA_RESP_ERR_NO_ERROR)
    fail(TSR_UNAVAILABLE, "kafka: topic ", topic_, ": ", rd_kafka_err2str(code));
}

void Kafka::select(std::span<const tessera::sdk::ReaderWant> wants) { rows_.select(wants, time_); }

// Fails if no broker has been connected for patience_s_.
void Kafka::look_after_brokers() {
  if (!down_ || Clock::now() - down_since_ < std::chrono::duration<double>(patience_s_)) return;
  const rd_kafka_metadata_t* found = nullptr;
  const auto code = rd_kafka_metadata(client_.get(), 0, nullptr, &found, kAskMs);
  if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
    fail(TSR_UNAVAILABLE, "kafka: no broker answers at ", brokers_, " (", rd_kafka_err2str(code), ") any more, for ",
         patience_s_, " s");
  rd_kafka_metadata_destroy(found);
  down_ = false;
}

void Kafka::refuse(const rd_kafka_message_t& message) const {
  const std::string where = message.rkt != nullptr ? place(message.partition) : "topic " + topic_;
  if (message.err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET || message.err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE)
    fail(TSR_DATA_LOSS, "kafka: ", where, ": the next messages are gone (", rd_kafka_message_errstr(&message), ")");
  if (message.err == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
    fail(TSR_UNAVAILABLE, "kafka: ", where, ": ", rd_kafka_message_errstr(&message));
  // Other errors are temporary, or lead to brokers that do not answer.
}

// Null if no message came.
KafkaMessage Kafka::poll(double wait_s) {
  KafkaMessage out(rd_kafka_consumer_poll(client_.get(), static_cast<int>(1000 * wait_s)));
  if (out == nullptr) return nullptr;
  if (out->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
    refuse(*out);
    return nullptr;
  }
  down_ = false;
  return out;
}

bool Kafka::at_ends() const {
  return ends_ &&
         std::all_of(last_.begin(), last_.end(), [&](const auto& l) { return offsets_.at(l.first) >= l.second; });
}

void Kafka::leave_out(int32_t partition, int64_t offset, const std::string& why) {
  const std::string message = place(partition) + ", offset " + std::to_string(offset) + ": " + why;
  if (left_out_ >= bad_messages_)
    fail(TSR_INVALID_ARGUMENT, message, "; kafka's option bad_messages says how many such messages are left out (now ",
         bad_messages_, ")");
  ++left_out_;
  host_.log(TSR_LOG_WARNING, message + "; it is left out, as " + std::to_string(left_out_) + " of at most " +
                                 std::to_string(bad_messages_));
}

void Kafka::skip(int64_t row, std::string why) {
  const int64_t offset = first_ + row;
  const std::string begin = where_ + ", row " + std::to_string(offset + 1) + ", ";  // prefix of the core's messages
  if (why.starts_with(begin)) why.erase(0, begin.size());
  leave_out(partition_, offset, why);
}

// Returns false if the message is left out; the columns then hold a part of it.
bool Kafka::add(const rd_kafka_message_t& message) {
  try {
    rows_.add({static_cast<const char*>(message.payload), message.len});
  } catch (const WrongField& e) {
    leave_out(message.partition, message.offset, e.what());
    return false;
  }
  if (!time_.empty()) return true;
  rd_kafka_timestamp_type_t kind = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
  const int64_t ms = rd_kafka_message_timestamp(&message, &kind);
  times_.push_back(kind == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ? std::numeric_limits<double>::quiet_NaN()
                                                            : static_cast<double>(ms) / 1000);
  return true;
}

Arrived Kafka::next(int64_t most, double wait_s) {
  constexpr double kSlice = 0.1;
  const Clock::time_point begin = Clock::now();
  rows_.start();
  times_.clear();
  Arrived out;
  partition_ = -1;
  while (out.rows < most && !at_ends()) {
    const double left = wait_s - std::chrono::duration<double>(Clock::now() - begin).count();
    KafkaMessage m = held_ ? std::move(held_) : poll(out.rows > 0 ? 0 : std::clamp(left, 0.0, kSlice));
    if (m == nullptr) {
      look_after_brokers();
      if (out.rows > 0 || left <= 0) break;
      continue;
    }
    // All rows of one call are consecutive in one partition.
    if (out.rows > 0 && (m->partition != partition_ || m->offset != out.first_row + out.rows)) {
      held_ = std::move(m);
      break;
    }
    offsets_[m->partition] = m->offset + 1;
    if (m->payload == nullptr) continue;  // a deletion of its key
    if (!add(*m)) {
      if (out.rows > 0) break;
      rows_.start();
      continue;
    }
    if (out.rows == 0) {
      partition_ = m->partition;
      out.first_row = first_ = m->offset;
    }
    ++out.rows;
  }
  where_ = partition_ < 0 ? "topic " + topic_ : place(partition_);
  out.where = where_.c_str();
  if (out.rows > 0) {
    last_row_ = Clock::now();
    values_ = rows_.values();
    out.values = values_;
    out.times = time_.empty() ? times_.data() : rows_.times().data();
    return out;
  }
  out.last = at_ends() || (idle_s_ > 0 && Clock::now() - last_row_ > std::chrono::duration<double>(idle_s_));
  return out;
}

std::string Kafka::position() const {
  nlohmann::ordered_json offsets = nlohmann::ordered_json::object();
  for (const auto& [partition, offset] : offsets_) offsets[std::to_string(partition)] = offset;
  nlohmann::ordered_json out = {{"topic", topic_}, {"offsets", offsets}};
  if (left_out_ > 0) out["left_out"] = left_out_;
  return out.dump();
}

}  // namespace tessera_readers
