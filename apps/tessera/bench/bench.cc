#include "bench/bench.h"

#include <algorithm>
#include <boost/lexical_cast/try_lexical_convert.hpp>
#include <iostream>

#include "bench/report/record.h"
#include "options.h"
#include "spawn.h"
#include "tessera/process_group.h"

namespace tessera::cli {
namespace po = boost::program_options;

bool parse(Options& options, const std::vector<std::string>& args, CommonOptions* common) {
  auto add = options.add_options();
  add("rounds", po::value(&common->rounds)->default_value(common->rounds),
      "number of times that everything is measured");
  add("threads", po::value(&common->threads)->default_value(common->threads), "threads of each rank");
  // listed for --help only: the session has already taken these out of `args`
  po::options_description of_session("Options of every bench");
  auto add_session = of_session.add_options();
  add_session("workload", po::value<std::string>()->value_name("FILE"),
              "run the workloads of this file: options by name, which options of the command line override");
  add_session("only", po::value<std::string>()->value_name("NAMES"),
              "run only these workloads of the file, separated by "
              "commas");
  add_session("json", "print JSON lines; the last ones are the bars on speed, and a line about machine and noise");
  add_session("html", po::value<std::string>()->value_name("FILE"), "also write a page with plots");
  add_session("compare", po::value<std::string>()->value_name("FILE"),
              "compare with an earlier output of --json and print what changed beyond the noise; lines of other "
              "programs in it are shown next to the bench's");
  add_session("round-per-line", "run and print one round for each line read from standard input");
  options.add(of_session);
  if (!parse_options(args, options)) return false;
  require_range({{"--rounds", common->rounds}, {"--threads", common->threads}});
  return true;
}

void require_range(std::initializer_list<std::pair<const char*, int64_t>> options, int64_t most) {
  for (const auto& [name, value] : options) {
    if (value >= 1 && value <= most) continue;
    const std::string bound = most == std::numeric_limits<int64_t>::max() ? "" : str_cat(", and at most ", most);
    throw UsageError(str_cat(name, " must be at least 1", bound));
  }
}

void run_rounds(const CommonOptions& common, const std::function<void()>& round, const std::function<void()>& print) {
  Rounds rounds(common);
  while (rounds.next()) {
    round();
    if (rounds.print_each()) print();
  }
  if (!rounds.print_each()) print();
}

double largest_over_ranks(const ProcessGroup& group, double mine) {
  const Tensor value = Tensor::scalar(mine);
  if (group.world_size() > 1) group.all_reduce(value, ReduceOp::kMax, "bench").wait();
  return value.item();
}

std::vector<std::string> text_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    if (end == start) throw UsageError(option + " has an empty item: \"" + text + "\"");
    items.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return items;
}

void check_join(const std::string& join) {
  if (join != "auto" && join != "always" && join != "never")
    throw UsageError(str_cat("--join ", join, ": choose auto, always or never"));
}

std::vector<int64_t> integer_list(const std::string& option, const std::string& text, int64_t least) {
  std::vector<int64_t> numbers;
  for (const std::string& item : text_list(option, text)) {
    int64_t value = 0;
    if (!boost::conversion::try_lexical_convert(item, value) || value < least) {
      throw UsageError(str_cat(option, " takes whole numbers of at least ", least, ", not \"", item, "\""));
    }
    numbers.push_back(value);
  }
  return numbers;
}

int bench_ranks(int asked, int usual) {
  if (asked != kNotAsked && (asked < 1 || asked > 1024)) throw UsageError("--nproc takes 1 to 1024 ranks");
  const RankEnvironment here = RankEnvironment::from_environment();
  if (here.source == "single") return asked == kNotAsked ? usual : asked;
  if (asked != kNotAsked && asked != here.world_size) {
    throw UsageError(str_cat("--nproc ", asked, ", but ", here.source, " has started ", here.world_size,
                             here.world_size == 1 ? " rank" : " ranks", ": leave --nproc out under a launcher"));
  }
  return here.world_size;
}

void run_bench(int ranks, double timeout_s, const std::function<void(const RankEnvironment&)>& body) {
  const RankEnvironment here = RankEnvironment::from_environment();
  if (here.source != "single") return body(here);
  run_in_ranks(ranks, ranks, timeout_s, [&](const RankEnvironment& where) {
    body(where);
    return std::string();
  });
}

bool Rounds::next() {
  if (!common_.round_per_line) return done_++ < common_.rounds;
  std::string line;
  return static_cast<bool>(std::getline(std::cin, line));
}

bool Rounds::next_together(const ProcessGroup& group) {
  const Tensor go = Tensor::zeros({1}, DType::kInt32);
  if (group.rank() == 0) go.data<int32_t>()[0] = next() ? 1 : 0;
  group.broadcast(go, 0, "next round").wait();
  return go.data<int32_t>()[0] != 0;
}

void Report::line(const Line& of_bench) {
  Line values;
  for (const auto& [key, value] : of_bench.items()) {
    values[key] = value;
    if (key == "bench" && !workload_.empty()) values["workload"] = workload_;
  }
  if (record_ >= 0) append(record_, values);
  if (silent_) return;
  if (json_) {
    std::cout << values.dump() << std::endl;
    return;
  }
  std::string columns, header, row;
  for (const auto& [key, value] : values.items()) {
    if (value.is_array()) continue;
    const std::string text = value_text(value);
    const size_t width = std::max({key.size(), text.size(), size_t{10}}) + 2;
    columns += key + ' ';
    header += key + std::string(width - key.size(), ' ');
    row += text + std::string(width - text.size(), ' ');
  }
  if (columns != columns_) std::cout << header << '\n';
  columns_ = columns;
  std::cout << row << std::endl;
}

}  // namespace tessera::cli
