#include "bench/report/peers.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tessera/error.h"

namespace tessera::cli {
namespace {

// True if a field describes the subject of a line rather than its program or its time.
bool is_about(const std::string& key) { return key != "bench" && key != "peer" && key != "workload"; }

bool fits(const Line& peer, const Line& line) {
  if (is_peer(line) || peer["bench"] != line["bench"]) return false;
  const auto asked = circumstances(peer);
  return std::all_of(asked.begin(), asked.end(), [&](const auto& item) {
    return !is_about(item.first) || line.value(item.first, Line()) == item.second;
  });
}

std::string text_of(const Line& peer) {
  std::string text;
  for (const auto& [key, value] : circumstances(peer)) {
    if (key != "bench" && key != "peer") text += str_cat(" ", key, "=", value_text(value));
  }
  return value_text(peer["peer"]) + text;
}

double number(const Line& line, const std::string& key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

struct Ratio {
  double value = 0;  // 0 if one of the two lacks the figure
  bool interleaved = false;
};

// One figure, such as "rest_us", in all rounds, and the rounds' numbers; a line without a number counts as round 0.
struct Figures {
  std::vector<double> values;
  std::set<double> rounds;
};
Figures figures_of(const Measured& m, const std::string& key) {
  Figures out;
  for (const Line& round : m.rounds) {
    if (number(round, key) <= 0) continue;
    out.values.push_back(number(round, key));
    out.rounds.insert(number(round, "round"));
  }
  return out;
}

// Rounds that alternated have the same numbers, each once. Peers' lines of another run have lost their numbers.
Ratio ratio_of(const Measured& peer, const Measured& own, const std::string& key) {
  const Figures theirs = figures_of(peer, key), ours = figures_of(own, key);
  if (theirs.values.empty() || ours.values.empty()) return {};
  const size_t rounds = ours.values.size();
  if (rounds == 1 || theirs.values.size() != rounds || ours.rounds.size() != rounds || theirs.rounds != ours.rounds)
    return {percentiles(theirs.values).median / percentiles(ours.values).median, false};
  std::vector<double> ratios;
  for (size_t i = 0; i < rounds; ++i) ratios.push_back(theirs.values[i] / ours.values[i]);
  return {percentiles(ratios).median, true};
}

// Finds the bar of a measurement against a peer.
class Demands {
 public:
  Demands(const Line& own, const std::string& peer) : own_(own), peer_(peer) {}

  std::optional<double> of_time() const {
    if (own_["bench"] == "lookup") return of_lookup();
    if (own_["bench"] == "collective" && peer_ == "gloo") {
      const int64_t bytes = own_.value("bytes", int64_t{0});
      if (bytes <= 256 << 10) return 5;
      if (bytes >= 2 << 20) return 1;
    }
    if (peer_ != "TorchRec" || own_.value("rows", Line()) != "criteo:100000") return {};
    if (own_["bench"] == "step" && is("world", 2)) return is("B", 16) ? 20 : is("B", 128) ? 8 : std::optional<double>();
    if (own_["bench"] == "train") return is("world", 1) ? 1.5 : is("world", 2) ? 2 : std::optional<double>();
    return {};
  }

  // The figure that describes a training step without its dense part.
  std::optional<double> of_rest() const {
    return peer_ == "TorchRec" && own_.value("rows", Line()) == "criteo:100000" ? 4 : std::optional<double>();
  }

 private:
  bool is(const char* key, const Line& value) const { return own_.value(key, Line()) == value; }

  std::optional<double> of_lookup() const {
    const bool one = is("threads", 1), two = is("threads", 2);
    if (!one && !two) return {};
    if (is("pass", "forward") && (is("dtype", "fp32") || is("dtype", "fp16"))) return is("alpha", 0) ? 1.5 : 1.2;
    if (!is("pass", "train") || !is("dtype", "fp32")) return {};
    if (is("optimizer", "exact_sgd")) return one ? 1.5 : 2.5;
    if (!is("optimizer", "exact_rowwise_adagrad") || peer_ != "FBGEMM") return {};
    const bool wide = is("D", 128);  // workloads s2 and s4
    return one ? (wide ? 4 : 5) : (wide ? 7 : 8);
  }

  const Line& own_;
  const std::string peer_;
};

// The gather limit that was measured with a forward; nullptr if there is none.
const Measured* limit_of(const Line& own, const std::vector<Measured>& results) {
  if (own.value("pass", Line()) != "forward") return nullptr;
  Line asked = own;
  for (const char* key : {"kernel", "optimizer"}) asked.erase(key);
  asked["pass"] = "limit";
  const auto found =
      std::find_if(results.begin(), results.end(), [&](const Measured& m) { return fits(asked, m.line); });
  return found == results.end() ? nullptr : &*found;
}

}  // namespace

bool is_peer(const Line& line) { return line.contains("peer"); }

std::vector<Line> peers_among(const std::vector<Line>& lines) {
  std::vector<Line> out;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(out), is_peer);
  return out;
}

std::vector<Line> peers_of_another_run(const std::vector<Line>& lines) {
  std::vector<Line> out = peers_among(lines);
  for (Line& line : out) line.erase("round");
  return out;
}

std::vector<Line> without_peers(const std::vector<Line>& lines) {
  std::vector<Line> out;
  std::remove_copy_if(lines.begin(), lines.end(), std::back_inserter(out), is_peer);
  return out;
}

std::string fault_of_peer(const Line& line) {
  if (!line["peer"].is_string() || line["peer"].get<std::string>().empty())
    return "\"peer\" must be the name of a program";
  if (!(number(line, "median_us") > 0) && !(number(line, "median_s") > 0))
    return "a peer's line needs \"median_us\", a positive number";
  return "";
}

std::vector<Line> completed_peers(const std::vector<Line>& peers, const std::vector<Line>& lines,
                                  std::vector<std::string>* strangers) {
  std::vector<Line> out;
  for (const Line& peer : peers) {
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const Line& line) { return fits(peer, line); });
    out.push_back(peer);
    if (found == lines.end()) {
      const std::string text = text_of(peer);
      if (std::find(strangers->begin(), strangers->end(), text) == strangers->end()) strangers->push_back(text);
      continue;
    }
    Line full{{"bench", peer["bench"]}, {"peer", peer["peer"]}};
    for (const auto& [key, value] : circumstances(*found)) {
      if (!names_contender(key) || peer.contains(key)) full[key] = value;
    }
    for (const auto& [key, value] : peer.items()) {
      if (!full.contains(key)) full[key] = value;
    }
    out.back() = std::move(full);
  }
  return out;
}

std::vector<Line> peer_bars(const std::vector<Measured>& results) {
  std::vector<Line> out;
  const std::vector<std::string> names = labels(results);
  const auto add = [&](const std::string& bar, size_t of, const Ratio& ratio, const std::optional<double>& bound) {
    if (ratio.value <= 0) return;
    out.push_back({{"bench", "bar"},
                   {"bar", bar + (ratio.interleaved ? "" : ", not interleaved")},
                   {"of", names[of]},
                   {"value", ratio.value},
                   {"bound", bound ? Line(*bound) : Line()},
                   {"holds", bound ? Line(ratio.value >= *bound) : Line()}});
  };
  for (size_t i = 0; i < results.size(); ++i) {
    const Measured& own = results[i];
    const bool judged = !is_peer(own.line) && own.line.value("kernel", "") != "reference";
    for (const Measured& peer : results) {
      if (!judged || !is_peer(peer.line) || !fits(peer.line, own.line)) continue;
      const std::string name = peer.line["peer"];
      const Demands demands(own.line, name);
      std::optional<double> bound = demands.of_time();
      const Measured* limit = bound ? limit_of(own.line, results) : nullptr;
      if (limit != nullptr) bound = std::min(*bound, 0.85 * ratio_of(peer, *limit, "median_us").value);
      add(name + "'s time over this one's", i, ratio_of(peer, own, "median_" + own.unit), bound);
      if (own.line["bench"] == "train")
        add(name + "'s time over this one's, without the dense part", i, ratio_of(peer, own, "rest_us"),
            demands.of_rest());
    }
  }
  return out;
}

}  // namespace tessera::cli
