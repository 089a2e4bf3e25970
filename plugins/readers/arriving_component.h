// Calls a reader of arriving rows through its function table, for tests.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tessera/sdk/draft/arriving.h"
#include "test_values.h"

namespace tessera_readers {

class ArrivingComponent {
 public:
  // Failed calls throw their message.
  ArrivingComponent(const tsr_component& component, const std::string& options, const tsr_instance* inner = nullptr,
                    const char* draft = TSR_READER_ARRIVING)
      : component_(component), api_(static_cast<const tsr_reader*>(component.api)) {
    tsr_error err TSR_ERROR_INIT;
    check(component_.create(&component_, host(), options.c_str(), inner, &self_, &err), err);
    arriving_ = static_cast<const tsr_reader_arriving*>(component_.extension(self_, draft));
  }
  ~ArrivingComponent() {
    if (self_ != nullptr) component_.destroy(self_);
  }
  ArrivingComponent(const ArrivingComponent&) = delete;
  ArrivingComponent& operator=(const ArrivingComponent&) = delete;

  ArrivingComponent& follow(const std::string& path, const std::string& position = "") {
    const tsr_reader_source source{sizeof(source), 0, path.c_str(), 1 << 20};
    tsr_error err TSR_ERROR_INIT;
    check(arriving_->follow(self_, &source, position.empty() ? nullptr : position.c_str(), &err), err);
    return *this;
  }
  ArrivingComponent& select(const std::vector<tsr_reader_want>& wants) {
    tsr_error err TSR_ERROR_INIT;
    check(api_->select(self_, std::ssize(wants), sizeof(tsr_reader_want), wants.data(), &err), err);
    types_.clear();
    for (const tsr_reader_want& w : wants) types_.push_back(w.type);
    return *this;
  }
  struct Rows {
    int64_t first = 0;
    bool last = false;
    std::string where;
    std::vector<std::string> rows;  // fields separated by |, "-" if missing; items of lists by blanks
    std::vector<double> times;
  };
  Rows next(int64_t most, double wait_s = 0) {
    std::vector<tsr_reader_values> values(
        types_.size(), tsr_reader_values{sizeof(tsr_reader_values), 0, nullptr, nullptr, nullptr, nullptr, nullptr});
    tsr_reader_arrived got{sizeof(got), 0, 0, 0, nullptr, nullptr};
    tsr_error err TSR_ERROR_INIT;
    check(arriving_->next(self_, most, wait_s, sizeof(tsr_reader_values), values.data(), &got, &err), err);
    Rows out{got.first_row, (got.flags & TSR_ARRIVED_LAST) != 0, got.where, {}, {}};
    for (int64_t row = 0; row < got.rows; ++row) {
      std::string text;
      for (size_t k = 0; k < values.size(); ++k) text += (k > 0 ? "|" : "") + field(values[k], types_[k], row);
      out.rows.push_back(text);
      if (got.times != nullptr) out.times.push_back(got.times[row]);
    }
    return out;
  }
  // Leaves out a row of the last next().
  void skip(int64_t row, const std::string& why) {
    const auto* skips = static_cast<const tsr_reader_skips*>(component_.extension(self_, TSR_READER_SKIPS));
    tsr_error err TSR_ERROR_INIT;
    check(skips->skip(self_, row, why.c_str(), &err), err);
  }
  std::string position() {
    const char* text = nullptr;
    tsr_error err TSR_ERROR_INIT;
    check(arriving_->position(self_, &text, &err), err);
    return text;
  }
  // Warnings so far, of all components.
  static std::vector<std::string>& warnings() {
    static std::vector<std::string> all;
    return all;
  }

 private:
  static void check(tsr_code code, const tsr_error& err) {
    if (code != TSR_OK) throw tessera::sdk::Failure(code, err.message);
  }
  static const tsr_host* host() {
    static const tsr_host table = [] {
      tsr_host h{};
      h.struct_size = sizeof(h);
      h.log = [](const tsr_host*, int32_t, const char* text) { warnings().emplace_back(text); };
      return h;
    }();
    return &table;
  }
  static std::string value(const tsr_reader_values& v, int32_t type, int64_t i) {
    if (type == TSR_READER_INT64) return std::to_string(static_cast<const int64_t*>(v.values)[i]);
    if (type == TSR_READER_FLOAT64) return std::to_string(static_cast<const double*>(v.values)[i]);
    if (type == TSR_READER_FLOAT32) return std::to_string(static_cast<const float*>(v.values)[i]);
    return {static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i])};
  }
  static std::string field(const tsr_reader_values& v, int32_t type, int64_t row) {
    if (v.lists == nullptr) return v.present != nullptr && v.present[row] == 0 ? "-" : value(v, type, row);
    std::string out;
    for (int64_t i = v.lists[row]; i < v.lists[row + 1]; ++i) out += (out.empty() ? "" : " ") + value(v, type, i);
    return out;
  }

  const tsr_component& component_;
  const tsr_reader* api_;
  const tsr_reader_arriving* arriving_ = nullptr;
  void* self_ = nullptr;
  std::vector<int32_t> types_;
};

}  // namespace tessera_readers
