#include "bench/report/bars.h"

#include <algorithm>
#include <array>
#include <functional>

#include "bench/report/peers.h"

namespace tessera::cli {
namespace {

using Results = std::vector<Measured>;

bool has(const Measured& m, const char* key, const Line& value) { return m.line.value(key, Line()) == value; }
double us_of(const Measured& m) { return m.us(m.time.median); }

// True if two results differ only in the circumstances `but` and in the name of the workload.
bool alike_but(const Measured& a, const Measured& b, const std::vector<std::string>& but) {
  const auto rest = [&](const Measured& m) {
    std::string text;
    for (const auto& [key, value] : circumstances(m.line)) {
      if (key != "workload" && std::find(but.begin(), but.end(), key) == but.end())
        text += key + '=' + value.dump() + ';';
    }
    return text;
  };
  return rest(a) == rest(b);
}

const Measured* find(const Results& all, const std::function<bool(const Measured&)>& wanted) {
  const auto found = std::find_if(all.begin(), all.end(), wanted);
  return found == all.end() ? nullptr : &*found;
}

class Judge {
 public:
  explicit Judge(const Results& all) : all_(all), names_(labels(all)) {}

  std::vector<Line> run() {
    for (size_t i = 0; i < all_.size(); ++i) {
      of_ = names_[i];
      const Measured& m = all_[i];
      if (is_peer(m.line)) continue;
      const Line bench = m.line["bench"];
      if (bench == "lookup") lookup(m);
      if (bench == "collective") collective(m);
      if (bench == "step") step(m);
      if (bench == "moves") moves(m);
      if (bench == "train") train(m);
      if (bench == "start") start(m);
      if (bench == "save") save(m);
      if (bench == "plan") at_most("time of a plan, s", m.time.median, m.line.value("bar_s", Line()));
      if (bench == "predict") predict(m);
      if (bench == "scale") growth(m);
    }
    return out_;
  }

 private:
  // True for the workloads limited by memory: s1, s2 and s4 of configs/bench/lookup.toml, by their T, E, D, B and L.
  static bool memory_bound(const Measured& m) {
    static constexpr std::array<std::array<int64_t, 5>, 3> kShapes{
        {{1, 1000000, 64, 2048, 20}, {8, 1000000, 128, 512, 20}, {4, 4000000, 128, 256, 64}}};
    return std::any_of(kShapes.begin(), kShapes.end(), [&](const auto& s) {
      return has(m, "T", s[0]) && has(m, "E", s[1]) && has(m, "D", s[2]) && has(m, "B", s[3]) && has(m, "L", s[4]);
    });
  }

  // Compares the bytes of rows and states that an update must move with those that the limit moved.
  void adam(const Measured& m) {
    const Measured* limit = find(all_, [&](const Measured& l) {
      return has(l, "pass", "limit") && alike_but(l, m, {"kernel", "pass", "optimizer"});
    });
    if (limit == nullptr || !m.line.contains("moved_gbps") || !limit->line.contains("gbps")) return;
    at_least("adam, share of the gather limit's bytes a second",
             m.line["moved_gbps"].get<double>() / limit->line["gbps"].get<double>(), 0.6);
  }

  // On a device, compares with the bytes that it moves when it only copies, for batches and tables too large for a
  // cache.
  void of_copies(const Measured& m) {
    const Measured* copy = find(all_, [&](const Measured& c) {
      return has(c, "pass", "copy") && alike_but(c, m, {"kernel", "pass", "optimizer"});
    });
    const auto number = [&](const char* key) { return m.line.value(key, 0.0); };
    const double row = number("T") * number("D") * sizeof(float);
    const bool large = number("B") * number("L") * row >= 2e9 && number("E") * row >= 4e9;
    if (copy == nullptr || !large || !has(m, "dtype", "fp32") || !has(m, "alpha", 0.0)) return;
    const double speed = copy->line.value("gbps", 0.0);
    if (has(m, "pass", "train"))
      at_least("training, rows and states moved over copied", number("moved_gbps") / speed, 0.6);
    if (has(m, "pass", "forward") && number("D") >= 64)
      at_least("forward, rows read over bytes copied", number("gbps") / speed, number("D") >= 128 ? 0.85 : 0.7);
  }

  void lookup(const Measured& m) {
    if (m.line.contains("device")) return of_copies(m);
    if (has(m, "optimizer", "adam") && has(m, "dtype", "fp32") && !has(m, "kernel", "reference")) adam(m);
    const bool forward = has(m, "pass", "forward") && !has(m, "kernel", "reference");
    if (!forward) return;
    if (memory_bound(m) && has(m, "dtype", "fp32") && has(m, "alpha", 0.0)) {
      const Measured* limit = find(all_, [&](const Measured& l) {
        return has(l, "pass", "limit") && alike_but(l, m, {"kernel", "pass", "optimizer"});
      });
      if (limit != nullptr) at_least("forward, share of the gather limit", us_of(*limit) / us_of(m), 0.85);
      const Measured* alone =
          find(all_, [&](const Measured& l) { return has(l, "threads", 1) && alike_but(l, m, {"threads"}); });
      if (has(m, "threads", 2) && alone != nullptr)
        at_least("forward, two threads over one", us_of(*alone) / us_of(m), 1.8);
    }
    const bool tiny = has(m, "T", 1) && has(m, "E", 1000) && has(m, "D", 64) && has(m, "B", 1) && has(m, "L", 1);
    if (tiny && has(m, "dtype", "fp32")) at_most("one table, one bag, one id, us", us_of(m), 1.0);
  }

  void collective(const Measured& m) {
    if (has(m, "backend", "raw") || has(m, "backend", "mpi") || !m.line.contains("bytes")) return;
    const auto other = [&](const std::string& backend) {
      return find(all_, [&](const Measured& o) { return has(o, "backend", backend) && alike_but(o, m, {"backend"}); });
    };
    const int64_t bytes = m.line["bytes"];
    if (const Measured* raw = other("raw")) {
      const double ratio = us_of(m) / us_of(*raw);
      if (bytes == 4096 && has(m, "op", "all_to_all")) at_most("4 KiB, times the raw exchange", ratio, 2.0);
      if (bytes >= 2 << 20) at_least("from 2 MiB, share of the raw bandwidth", 1 / ratio, 0.85);
    }
    // A transport with options ("tcp?shm=false") is judged against Open MPI if the one without options was left out.
    const std::string backend = m.line["backend"];
    const bool variant =
        backend.find('?') != std::string::npos && other(backend.substr(0, backend.find('?'))) != nullptr;
    const bool level = bytes == 4096 || bytes == 2 << 20 || bytes == 64 << 20;
    const Measured* mpi = other("mpi");
    if (level && mpi != nullptr && !variant) at_most("times Open MPI", us_of(m) / us_of(*mpi), 1.0);
  }

  void step(const Measured& m) {
    const auto any = [&](const char* key, std::initializer_list<int> values) {
      return std::any_of(values.begin(), values.end(), [&](int v) { return has(m, key, v); });
    };
    if (!has(m, "rows", "criteo:100000") || !has(m, "world", 2) || !has(m, "L", 1) || !any("D", {16, 64})) return;
    // The time of an exchange is latency plus work per id; only large batches of wide rows are mostly copied.
    if (has(m, "B", 128) && has(m, "D", 64)) {
      over("neither kernel nor exchange, times copying what travels", m, "overhead_us", "copy_us", 4.0);
    } else if (any("B", {16, 128})) {
      over("neither kernel nor exchange, times the bare exchanges", m, "overhead_us", "exchange_us", 5.0);
    }
  }

  // If two threads that only copy gain this much, two threads that move rows must gain it as well.
  void moves(const Measured& m) {
    if (!has(m, "threads", 2) || has(m, "op", "memcpy")) return;
    const auto gain = [&](const Line& op) {
      const auto on = [&](int threads) {
        return find(all_, [&](const Measured& l) {
          return has(l, "threads", threads) && l.line["op"] == op && alike_but(l, m, {"threads", "op"});
        });
      };
      const Measured *one = on(1), *two = on(2);
      return one != nullptr && two != nullptr ? us_of(*one) / us_of(*two) : 0.0;
    };
    if (gain("memcpy") >= 1.7) at_least("rows moved, two threads over one", gain(m.line["op"]), 1.5);
  }

  // Compares with two times of this machine: starting a program with all plugins, and writing the tables' memory once.
  // A job needs three passes over that memory (clear, make start values, write them), then layers, data and a step.
  void start(const Measured& m) {
    const Line floor = m.line.value("floor_s", Line());
    if (!floor.is_number() || floor <= 0.0) return;
    at_most("process start to the end of the first step, times its floor", m.time.median / floor.get<double>(), 4.0);
  }

  // Compares with a copy in memory, with the steps without a save, and with a plain program that writes as much.
  void save(const Measured& m) {
    const double copy = m.line.value("copy_s", 0.0), apart = m.line.value("save_s", 0.0);
    if (copy <= 0 || apart <= 0) return;
    at_most("pause for a checkpoint, copies of the rank's rows", m.time.median / copy, 1.3);
    if (has(m, "world", 1))
      at_least("pace while a checkpoint is written", m.line.value("pace_while_saving", 0.0), 0.85);
    at_least("speed of a checkpoint, share of a plain program's", m.line.value("plain_write_s", 0.0) / apart, 0.8);
  }

  void train(const Measured& m) {
    const Line share = m.line.value("dense_of_sgemm", Line());
    if (share.is_number() && has(m, "rows", "criteo:100000"))
      at_least("dense part, share of the matrix products' speed", share, 0.9);
    const Measured* alone =
        find(all_, [&](const Measured& l) { return has(l, "threads", 1) && alike_but(l, m, {"threads"}); });
    if (alone == nullptr || !has(m, "threads", 2) || !has(m, "B", 2048)) return;
    const auto gain = [&](const char* key) { return m.line.value(key, 0.0) / alone->line.value(key, 1.0); };
    // If two threads that share nothing gain less, a smaller gain is accepted here.
    if (gain("sgemm_gflops") >= 1.8) at_least("dense part, two threads over one", gain("dense_gflops"), 1.6);
  }

  void predict(const Measured& m) {
    const Line off = m.line.value("off_percent", Line());
    if (off.is_number()) at_most("prediction off, percent", std::abs(off.get<double>()), 25.0);
  }

  // Fits the exponent of a curve at its first point: least squares of the logarithms of the upper half, at least three.
  void growth(const Measured& first) {
    const std::string grows = first.line["grows"], bar = "time over " + grows + ", exponent";
    std::vector<std::pair<double, double>> points;
    for (const Measured& m : all_) {
      if (has(m, "workload", first.line.value("workload", Line())) && alike_but(m, first, {grows})) {
        if (points.empty() && &m != &first) return;
        points.emplace_back(std::log(m.line.value(grows, 1.0)), std::log(us_of(m)));
      }
    }
    if (points.size() < 3) return;
    of_ = first.line["of"];
    for (const auto& [key, value] : circumstances(first.line)) {
      if (names_contender(key)) of_ += ' ' + value_text(value);
    }
    const size_t from = std::min(points.size() / 2, points.size() - 3);
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = from; i < points.size(); ++i) {
      const auto [a, b] = points[i];
      n += 1, x += a, y += b, xx += a * a, xy += a * b;
    }
    at_most(bar.c_str(), (n * xy - x * y) / (n * xx - x * x), first.line.value("exponent", 1.0) + 0.15);
  }

  // Judges one figure of a line divided by another one of the same run.
  void over(const char* bar, const Measured& m, const char* key, const char* by, double bound) {
    const Line a = m.line.value(key, Line()), b = m.line.value(by, Line());
    if (a.is_number() && b.is_number() && b > 0.0) at_most(bar, a.get<double>() / b.get<double>(), bound);
  }
  void at_least(const char* bar, double value, double bound) { add(bar, value, bound, value >= bound); }
  void at_most(const char* bar, double value, const Line& bound) {
    if (bound.is_number()) add(bar, value, bound, value <= bound.get<double>());
  }
  void add(const char* bar, double value, const Line& bound, bool holds) {
    out_.push_back({{"bench", "bar"}, {"bar", bar}, {"of", of_}, {"value", value}, {"bound", bound}, {"holds", holds}});
  }

  const Results& all_;
  std::vector<std::string> names_;
  std::string of_;  // the subject being judged now
  std::vector<Line> out_;
};

}  // namespace

std::vector<Line> judged(const std::vector<Line>& lines) {
  const Results all = measured(lines);
  std::vector<Line> bars = Judge(all).run();
  const std::vector<Line> beside_peers = peer_bars(all);
  bars.insert(bars.end(), beside_peers.begin(), beside_peers.end());
  return bars;
}

}  // namespace tessera::cli
