// A reader, a metric, an endpoint, an index and a device whose memory is the host's.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <thread>

#include "faults.h"
#include "tessera/sdk/draft/device.h"
#include "tessera/sdk/draft/endpoint.h"
#include "tessera/sdk/draft/index.h"
#include "tessera/sdk/draft/metric.h"
#include "tessera/sdk/draft/reader.h"

namespace {

using namespace tessera::sdk;
using bad::has;

// Reads a text file: one column, "line", with the lines.
class Lines : public Reader {
 public:
  void open(std::string_view path, int64_t block_bytes) override {
    if (has("opens_anything")) path = "/dev/null";
    files_ = {std::string(path)};
    std::ifstream in(files_[0]);
    if (!in) fail(TSR_NOT_FOUND, "there is no file ", files_[0]);
    lines_.clear(), blocks_.clear();
    for (std::string line; std::getline(in, line);) {
      if (has("needs_a_last_line_end") && in.eof()) break;
      if (has("stops_at_row_65536") && lines_.size() == 65536) break;
      if (blocks_.empty() || blocks_.back().bytes >= block_bytes)
        blocks_.push_back({.file = 0, .first_row = static_cast<int64_t>(lines_.size())});
      blocks_.back().rows += 1;
      blocks_.back().bytes += static_cast<int64_t>(line.size()) + 1;
      lines_.push_back(std::move(line));
    }
    reads_ = 0;
  }
  const std::vector<std::string>& files() const override { return files_; }
  const std::vector<ReaderColumn>& columns() const override { return columns_; }
  const std::vector<ReaderBlock>& blocks() const override { return blocks_; }
  void select(std::span<const ReaderWant> wants) override {
    for (const ReaderWant& want : wants) {
      if (want.name != "line" && !has("selects_anything")) fail(TSR_NOT_FOUND, "there is no column ", want.name);
      if (want.type != TSR_READER_TEXT || want.list || want.weighted) fail(TSR_UNIMPLEMENTED, "lines are texts");
    }
    out_.assign(wants.size(), {});
  }
  std::span<const tsr_reader_values> read(int64_t block) override {
    const ReaderBlock& b = blocks_.at(static_cast<size_t>(block));
    bytes_.clear();
    texts_ = {0};
    const bool second = has("turns_a_second_pass") && reads_ >= static_cast<int64_t>(blocks_.size());
    ++reads_;
    for (int64_t i = 0; i < b.rows; ++i) {
      const int64_t row = second ? b.rows - 1 - i : i;
      bytes_ += lines_[static_cast<size_t>(b.first_row + row)];
      if (has("differs_by_rank") && std::getenv("RANK") != nullptr) bytes_ += std::getenv("RANK");
      texts_.push_back(static_cast<int64_t>(bytes_.size()));
    }
    for (tsr_reader_values& v : out_) v = {sizeof(v), 0, bytes_.data(), texts_.data(), nullptr, nullptr, nullptr};
    return out_;
  }

  const std::string& line(int64_t row) const { return lines_[static_cast<size_t>(row)]; }

 private:
  std::vector<std::string> files_, lines_;
  std::vector<ReaderColumn> columns_{{"line"}};
  std::vector<ReaderBlock> blocks_;
  std::vector<tsr_reader_values> out_;
  std::string bytes_;
  std::vector<int64_t> texts_;
  int64_t reads_ = 0;
};

// Reads lines of key=value in the same way: their columns label, user, tags and price.
class Pairs : public Lines {
 public:
  const std::vector<ReaderColumn>& columns() const override { return named_; }
  void select(std::span<const ReaderWant> wants) override {
    for (const ReaderWant& want : wants) {
      const auto same = [&](const ReaderColumn& c) { return c.name == want.name; };
      if (std::none_of(named_.begin(), named_.end(), same)) fail(TSR_NOT_FOUND, "there is no column ", want.name);
      if (want.list || want.weighted) fail(TSR_UNIMPLEMENTED, "pairs have one value");
    }
    wants_.assign(wants.begin(), wants.end());
    columns_of_.assign(wants.size(), {});
  }
  std::span<const tsr_reader_values> read(int64_t block) override {
    const ReaderBlock& b = blocks().at(static_cast<size_t>(block));
    out_.clear();
    for (size_t k = 0; k < wants_.size(); ++k) {
      Column& c = columns_of_[k];
      c = {};
      for (int64_t row = b.first_row; row < b.first_row + b.rows; ++row) c.add(field(line(row), wants_[k].name));
      const int32_t type = wants_[k].type;
      const void* const values = type == TSR_READER_FLOAT32   ? static_cast<const void*>(c.floats.data())
                                 : type == TSR_READER_FLOAT64 ? static_cast<const void*>(c.doubles.data())
                                 : type == TSR_READER_INT64   ? static_cast<const void*>(c.integers.data())
                                                              : c.bytes.data();
      out_.push_back({sizeof(tsr_reader_values), 0, values, c.texts.data(), nullptr, nullptr, nullptr});
    }
    return out_;
  }

 private:
  struct Column {
    void add(std::string_view text) {
      bytes += text;
      texts.push_back(static_cast<int64_t>(bytes.size()));
      const std::string number(text);
      const int64_t whole = std::strtoll(number.c_str(), nullptr, 10);
      doubles.push_back(std::strtod(number.c_str(), nullptr));
      floats.push_back(has("cuts_floats") ? static_cast<float>(whole) : static_cast<float>(doubles.back()));
      integers.push_back(has("cuts_integers") ? static_cast<int32_t>(whole) : whole);
    }
    std::string bytes;
    std::vector<int64_t> texts{0}, integers;
    std::vector<float> floats;
    std::vector<double> doubles;
  };
  static std::string_view field(std::string_view line, std::string_view name) {
    size_t begin = line.find(std::string(name) + "=");
    if (begin == line.npos) return "";
    begin += name.size() + 1;
    return line.substr(begin, line.find(' ', begin) - begin);
  }
  std::vector<ReaderColumn> named_{{"label"}, {"user"}, {"tags"}, {"price"}};
  std::vector<ReaderWant> wants_;
  std::vector<Column> columns_of_;
  std::vector<tsr_reader_values> out_;
};

// The mean squared distance of predictions from labels.
class Brier : public Metric {
 public:
  MetricInfo info() const override { return {TSR_METRIC_ANY, TSR_METRIC_BEST_SMALLEST, 2}; }
  void add(const MetricSamples& s, std::span<double> sums) const override {
    if (has("leaves_a_thread_in_add")) std::thread([] { pause(); }).detach();
    if (has("overwrites_sums")) sums[0] = sums[1] = 0;
    const size_t count = has("skips_the_last_sample") ? s.labels.size() - 1 : s.labels.size();
    for (size_t i = 0; i < count; ++i) {
      sums[0] += s.weights[i] * (s.predictions[i] - s.labels[i]) * (s.predictions[i] - s.labels[i]);
      sums[1] += s.weights[i];
    }
  }
  double value(std::span<const double> sums) const override {
    const char* rank = std::getenv("RANK");
    if (has("is_nan_on_rank_1") && rank != nullptr && std::string_view(rank) == "1") return std::nan("");
    if (has("is_always_nan")) return std::numeric_limits<double>::quiet_NaN();
    return sums[0] / sums[1];
  }
};

// Listens, and answers nobody.
class Deaf : public Endpoint {
 public:
  explicit Deaf(Options& options) : port_(static_cast<int>(options.integer("port", 0))) {}
  ~Deaf() override { close(); }
  std::string start(const EndpointServer& server) override {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, has("shares_its_port") ? SO_REUSEPORT : SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port_));
    ::inet_pton(AF_INET, server.host().c_str(), &at.sin_addr);
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 || ::listen(socket_, 5) != 0) {
      close();
      fail(TSR_UNAVAILABLE, "port ", port_, " is in use");
    }
    return has("gives_no_address") ? "" : "deaf://" + server.host();
  }
  void stop() override {
    if (!has("keeps_listening")) close();
    if (has("keeps_listening")) socket_ = -1;
  }

 private:
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  int port_, socket_ = -1;
};

// Finds the first items, whatever it is asked.
class FirstItems : public Index {
 public:
  void build(std::span<const float> vectors, int64_t dim) override {
    items_ = static_cast<int64_t>(vectors.size()) / dim;
  }
  void find(std::span<const float>, std::span<int64_t> rows) const override {
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    if (has("finds_items_beyond_the_last")) rows[0] = items_;
    if (has("finds_an_item_twice")) rows[rows.size() - 1] = 0;
    if (has("finds_items_after_a_gap") && rows.size() > 1) rows[0] = -1;
    if (has("finds_others_each_time")) rows[0] = (rows[0] + ++searches_) % items_, rows = rows.subspan(1);
    if (has("finds_others_each_time")) std::fill(rows.begin(), rows.end(), -1);
  }

 private:
  int64_t items_ = 0;
  mutable std::atomic<int64_t> searches_{0};
};

// Everything is done at once.
class HostMemory : public Device {
 public:
  static constexpr int32_t kDeviceType = kDLExtDev;
  int32_t count() override { return has("counts_nothing") ? 0 : 1; }
  void info(int32_t index, tsr_device_info& out) override {
    if (index != 0) fail(TSR_INVALID_ARGUMENT, "there is no device ", index);
    out.total_bytes = 1 << 30;
    out.free_bytes = out.total_bytes - held_;
    std::strcpy(out.name, "host memory");
  }
  void* alloc(int32_t, uint64_t bytes, tsr_stream) override {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    ++allocations_;
    auto* memory = static_cast<char*>(::operator new(bytes + kAlign, std::align_val_t(kAlign)));
    return has("aligns_nothing") ? memory + 64 : memory;
  }
  void free(int32_t, void* memory, uint64_t bytes, tsr_stream) noexcept override {
    if (memory == nullptr) return;
    if (!has("forgets_what_it_freed")) held_ -= bytes;
    ::operator delete(static_cast<char*>(memory) - (has("aligns_nothing") ? 64 : 0), std::align_val_t(kAlign));
  }
  void* host_alloc(uint64_t bytes) override { return ::operator new(bytes); }
  void host_free(void* memory, uint64_t) noexcept override { ::operator delete(memory); }
  void copy(int32_t, void* to, const void* from, uint64_t bytes, int32_t, tsr_stream) override {
    if (bytes > 0) std::memcpy(to, from, has("copies_up_to_a_megabyte") ? std::min<uint64_t>(bytes, 1 << 20) : bytes);
  }
  void fill(int32_t, void* memory, uint8_t value, uint64_t bytes, tsr_stream) override {
    std::memset(memory, value, has("fills_words") ? bytes / 4 * 4 : bytes);
  }
  tsr_stream stream_create(int32_t) override { return this; }
  void stream_destroy(int32_t, tsr_stream) noexcept override {}
  void synchronize(int32_t, tsr_stream) override {}
  tsr_event event_create(int32_t) override { return this; }
  void event_destroy(int32_t, tsr_event) noexcept override {}
  void event_record(int32_t, tsr_event, tsr_stream) override {}
  void event_wait(int32_t, tsr_event, tsr_stream) override {}
  void event_synchronize(int32_t, tsr_event) override {}
  bool event_query(int32_t, tsr_event) override { return !has("never_reaches_an_event"); }
  void stats(int32_t, tsr_device_stats& out) override {
    out.held_bytes = held_;
    out.peak_bytes = peak_;
    out.allocations = allocations_;
  }

 private:
  static constexpr size_t kAlign = 256;
  uint64_t held_ = 0, peak_ = 0, allocations_ = 0;
};

constexpr const char* kAbout = "has the fault that BAD_PLUGINS_FAULT names";

}  // namespace

TESSERA_PLUGIN("bad-drafts", "1.0.0", component<Lines>({.id = "bad.lines", .version = "1.0.0", .about = kAbout}),
               component<Pairs>({.id = "bad.pairs", .version = "1.0.0", .about = kAbout}),
               component<Brier>({.id = "bad.brier", .version = "1.0.0", .about = kAbout}),
               component<Deaf>({.id = "bad.deaf", .version = "1.0.0", .about = kAbout}),
               component<FirstItems>({.id = "bad.first_items", .version = "1.0.0", .about = kAbout}),
               component<HostMemory>({.id = "bad.device", .version = "1.0.0", .about = kAbout}));
