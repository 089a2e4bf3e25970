#include "plan/picture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "bench/report/lines.h"
#include "bench/report/svg.h"
#include "command.h"

namespace tessera::cli {
namespace {

constexpr double kPanel = 300;  // height of the fullest rank
constexpr double kMargin = 70;  // left margin, for the scale
constexpr double kTop = 66;
constexpr double kBetween = 84;  // gap between the panels
constexpr double kWidest = 160, kNarrowest = 8;
constexpr double kFullWidth = 1100;  // width of all columns, if they can be so narrow
constexpr double kHostGap = 8;
constexpr double kNameHeight = 14, kNameWidth = 30;  // smallest box that shows its table's name
constexpr double kLegend = 56;                       // below the panels and their names of ranks and hosts

// The style of the image, also used when the image stands by itself.
constexpr const char* kImageStyle = R"(
.page { fill: var(--bg); } .host { fill: var(--grid); } .shard { stroke: var(--bg); stroke-width: 0.5; }
svg text { fill: var(--ink); } svg text.soft { fill: var(--soft); } svg text.on { fill: var(--on); font-size: 11px; }
)";

constexpr const char* kPageStyle = R"(
body { background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 0; padding: 24px; }
svg { max-width: 100%; height: auto; } pre { font-size: clamp(8px, 1.03vw, 12.5px); overflow-x: auto; }
)";

struct Box {
  int rank;
  double bytes, us;
  size_t color;
  std::string table, title;
};

std::string fixed(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", x);
  return text;
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g %s", bytes, kUnits[unit]);
  return text;
}

std::string count_of(size_t n, const char* what) { return str_cat(n, " ", what, n == 1 ? "" : "s"); }

class Picture {
 public:
  explicit Picture(const PlanResult& result) : result_(result) {
    for (const size_t index : result.chosen) add(result.space.options[index]);
    const int ranks = result.topology.world_size;
    column_ = std::clamp(kFullWidth / ranks, kNarrowest, kWidest);
  }

  std::string text() const {
    const double panels = 2 * kPanel + kBetween;
    const double bottom = kTop + panels + kLegend;
    const double height = bottom + 24 * static_cast<double>(types_.size() + 1) + 10;
    const double width = std::max(x_of(result_.topology.world_size) + 40, 520.0);
    std::string out = str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(width), "\" height=\"",
                              fixed(height), "\" viewBox=\"0 0 ", fixed(width), " ", fixed(height),
                              "\" font-family=\"sans-serif\" font-size=\"12\">\n");
    out +=
        str_cat("<style>", palette(), kImageStyle, "</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n");
    const Topology& where = result_.topology;
    out += str_cat("<text x=\"", fixed(kMargin), "\" y=\"20\" font-size=\"15\">",
                   count_of(static_cast<size_t>(where.world_size), "rank"), " on ",
                   count_of(static_cast<size_t>(where.hosts()), "host"), ", ", escaped(where.compute_device), ", ",
                   count_of(result_.chosen.size(), "table"), "</text>\n");
    out += panel("bytes", "memory per rank", kTop, &Box::bytes, bytes_text);
    out += panel("load", "predicted time per rank and step", kTop + kPanel + kBetween, &Box::us, time_text);
    out += str_cat("<text x=\"", fixed(kMargin), "\" y=\"", fixed(bottom + 13),
                   "\" class=\"soft\">A box is a shard of a table; its colour is the sharding type:</text>\n");
    for (size_t i = 0; i < types_.size(); ++i) {
      const double y = bottom + 24 * static_cast<double>(i + 1);
      out += str_cat("<rect x=\"", fixed(kMargin), "\" y=\"", fixed(y), "\" width=\"16\" height=\"16\" fill=\"",
                     color(i), "\"/>\n<text x=\"", fixed(kMargin + 24), "\" y=\"", fixed(y + 13), "\">",
                     escaped(types_[i]), "</text>\n");
    }
    return out + "</svg>\n";
  }

 private:
  void add(const ShardingOption& option) {
    const auto known = std::find(types_.begin(), types_.end(), option.sharding_type);
    const auto index = static_cast<size_t>(known - types_.begin());
    if (known == types_.end()) types_.push_back(option.sharding_type);
    const std::vector<int> ranks = result_.plan.at(option.path).at(option.name).ranks();
    for (size_t i = 0; i < option.shards.size(); ++i) {
      const Shard s = option.shards[i];
      const auto bytes = static_cast<double>(s.storage.hbm + s.storage.ddr);
      const double us = 1000 * s.perf.total();
      boxes_.push_back({ranks[i], bytes, us, index, option.name,
                        str_cat(option.path.empty() ? "" : option.path + ".", option.name, ": ", option.sharding_type,
                                ", ", option.compute_kernel, ", rows ", s.row, " to ", s.row + s.rows, ", columns ",
                                s.col, " to ", s.col + s.cols, ", ", bytes_text(bytes), ", ", time_text(us))});
    }
  }

  double x_of(int rank) const {
    const int host = rank / result_.topology.local_world_size;
    return kMargin + rank * column_ + host * kHostGap;
  }

  // Draws the boxes of one quantity, bottom up; the fullest rank is kPanel high.
  std::string panel(const char* name, const char* caption, double top, double Box::*size,
                    std::string (*words)(double)) const {
    std::vector<double> filled(static_cast<size_t>(result_.topology.world_size), 0.0);
    for (const Box& b : boxes_) filled[static_cast<size_t>(b.rank)] += b.*size;
    const double most = *std::max_element(filled.begin(), filled.end());
    const double scale = most > 0 ? kPanel / most : 0;
    std::string out = str_cat("<g id=\"", name, "\">\n<text x=\"", fixed(kMargin), "\" y=\"", fixed(top - 20), "\">",
                              caption, "; the fullest rank has ", escaped(words(most)), "</text>\n", frames(top));
    std::fill(filled.begin(), filled.end(), 0.0);
    for (const Box& b : boxes_) {
      double& below = filled[static_cast<size_t>(b.rank)];
      const double height = b.*size * scale;
      out += str_cat("<rect class=\"shard\" x=\"", fixed(x_of(b.rank)), "\" y=\"", fixed(top + kPanel - below - height),
                     "\" width=\"", fixed(column_ - 2), "\" height=\"", fixed(height), "\" fill=\"", color(b.color),
                     "\"><title>", escaped(b.title), "</title></rect>\n");
      if (height >= kNameHeight && column_ >= kNameWidth) {
        out += str_cat("<text class=\"on\" x=\"", fixed(x_of(b.rank) + 4), "\" y=\"",
                       fixed(top + kPanel - below - height / 2 + 4), "\" pointer-events=\"none\">",
                       escaped(cut_to(b.table, column_ - 8)), "</text>\n");
      }
      below += height;
    }
    return out + "</g>\n";
  }

  // Draws hosts as grey fields with their names, and ranks with their numbers if they fit.
  std::string frames(double top) const {
    const int local = result_.topology.local_world_size;
    std::string out;
    for (int host = 0; host < result_.topology.hosts(); ++host) {
      const double x = x_of(host * local), width = local * column_;
      out += str_cat("<rect class=\"host\" x=\"", fixed(x - 3), "\" y=\"", fixed(top - 4), "\" width=\"",
                     fixed(width + 4), "\" height=\"", fixed(kPanel + 8), "\"><title>host ", host, "</title></rect>\n");
      if (width >= 40) {
        out += str_cat("<text x=\"", fixed(x), "\" y=\"", fixed(top + kPanel + 34), "\" class=\"soft\">host ", host,
                       "</text>\n");
      }
    }
    const int every = std::max(1, static_cast<int>(std::ceil(24 / column_)));
    for (int rank = 0; rank < result_.topology.world_size; rank += every) {
      out += str_cat("<text x=\"", fixed(x_of(rank)), "\" y=\"", fixed(top + kPanel + 18), "\">", rank, "</text>\n");
    }
    return out;
  }

  const PlanResult& result_;
  std::vector<Box> boxes_;
  std::vector<std::string> types_;
  double column_;
};

}  // namespace

std::string plan_svg(const PlanResult& result) { return Picture(result).text(); }

std::string plan_html(const PlanResult& result) {
  std::string lines;
  std::istringstream report(result.report());
  for (std::string line; std::getline(report, line);) lines += escaped(line) + "\n";
  return str_cat("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/>\n<meta name=\"viewport\" ",
                 "content=\"width=device-width, initial-scale=1\"/>\n<title>Sharding plan</title>\n<style>", kPageStyle,
                 "</style></head>\n", "<body>\n", plan_svg(result), "<pre>\n", lines, "</pre>\n</body>\n</html>\n");
}

void write_picture(const std::string& path, const PlanResult& result) {
  const bool html = path.ends_with(".html");
  if (!html && !path.ends_with(".svg"))
    throw UsageError("--picture " + path + ": the name must end with .svg or .html");
  std::ofstream out(path, std::ios::binary);
  out << (html ? plan_html(result) : plan_svg(result));
  out.close();
  if (!out) throw UsageError("--picture: cannot write " + path);
}

}  // namespace tessera::cli
