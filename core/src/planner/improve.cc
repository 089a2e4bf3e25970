#include "planner/improve.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <vector>

namespace tessera {

namespace {

constexpr double kLeastGain = 1e-6;         // least gain of a step, relative to the busiest rank's load
constexpr size_t kSwapPartners = 24;        // idlest ranks to try for swaps; more ranks only if none of these helps
constexpr size_t kTablesToReconsider = 48;  // the heaviest tables of the busiest rank

class Improver {
 public:
  Improver(const Chooser& chooser, Board& board, Budget& budget)
      : chooser_(chooser), board_(board), budget_(budget), by_load_(board.loads().size()) {}

  void run() {
    while (!budget_.over()) {
      sort_ranks();
      busiest_ = static_cast<int>(by_load_.back());
      limit_ = load(busiest_) * (1 - kLeastGain);
      if (limit_ <= 0 || !(relieve_by_shards() || relieve_by_tables())) return;
    }
  }

 private:
  struct Change {
    double worst = std::numeric_limits<double>::infinity();  // load of the busier of the two ranks afterwards
    Board::Piece piece{};
    std::optional<Board::Piece> partner;
    int rank = 0;
  };
  struct Weighed {
    double weight;
    size_t order;  // position among the rank's movable pieces
    Board::Piece piece;
  };

  double load(int rank) const { return board_.loads()[static_cast<size_t>(rank)]; }

  void sort_ranks() {
    std::iota(by_load_.begin(), by_load_.end(), size_t{0});
    std::stable_sort(by_load_.begin(), by_load_.end(),
                     [&](size_t a, size_t b) { return board_.loads()[a] < board_.loads()[b]; });
    budget_.spend(std::ssize(by_load_));
  }

  bool relieve_by_shards() {
    Change best;
    best.worst = limit_;
    bool found = false;
    for (const Board::Piece& piece : board_.pieces(busiest_)) {
      if (!board_.movable(piece) || board_.load_of(piece) <= 0) continue;
      found = consider_move(piece, best) || found;
    }
    for (size_t i = 0; i + 1 < by_load_.size() && (i < kSwapPartners || !found); ++i) {
      found = consider_swaps(static_cast<int>(by_load_[i]), best) || found;
    }
    if (!found) return false;
    if (best.partner) {
      board_.swap(best.piece, *best.partner);
    } else {
      board_.move(best.piece, best.rank);
    }
    return true;
  }

  // Considers moving the piece to the idlest rank with room for it.
  bool consider_move(const Board::Piece& piece, Change& best) {
    const double weight = board_.load_of(piece);
    const double left = load(busiest_) - weight;
    for (size_t i = 0; i + 1 < by_load_.size(); ++i) {
      const auto rank = static_cast<int>(by_load_[i]);
      const double worst = std::max(left, load(rank) + weight);
      budget_.spend(1);
      if (worst >= best.worst) return false;
      if (!board_.can_move(piece, rank)) continue;
      best = {worst, piece, std::nullopt, rank};
      return true;
    }
    return false;
  }

  // Considers swapping each piece of the busiest rank with a piece of `rank`, so that the busier of the two ranks gets
  // as little load as possible.
  bool consider_swaps(int rank, Change& best) {
    bool found = false;
    const std::vector<Weighed> partners = weighed(rank);
    for (const Board::Piece& piece : board_.pieces(busiest_)) {
      if (board_.movable(piece)) found = consider_swap(piece, rank, partners, best) || found;
    }
    return found;
  }

  // The pieces of the rank that can move, the lightest first.
  std::vector<Weighed> weighed(int rank) const {
    std::vector<Weighed> result;
    for (const Board::Piece& piece : board_.pieces(rank)) {
      if (board_.movable(piece)) result.push_back({board_.load_of(piece), result.size(), piece});
    }
    std::sort(result.begin(), result.end(), [](const Weighed& a, const Weighed& b) {
      return std::tie(a.weight, a.order) < std::tie(b.weight, b.order);
    });
    return result;
  }

  // Tries partners in both directions from the ideal weight, until the busier of the two ranks would be busier than
  // after the best change so far. If partners are equal, it takes the first in the rank's order.
  bool consider_swap(const Board::Piece& piece, int rank, std::span<const Weighed> partners, Change& best) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const double weight = board_.load_of(piece);
    const auto worst_with = [&](const Weighed& partner) {
      const double less = weight - partner.weight;
      return std::max(load(busiest_) - less, load(rank) + less);
    };
    const double ideal = weight - (load(busiest_) - load(rank)) / 2;
    auto above = std::lower_bound(partners.begin(), partners.end(), ideal,
                                  [](const Weighed& partner, double value) { return partner.weight < value; });
    auto below = above;  // one past the next lighter partner
    const Weighed* found = nullptr;
    budget_.spend(1);
    while (true) {
      const double worst_below = below == partners.begin() ? kNone : worst_with(below[-1]);
      const double worst_above = above == partners.end() ? kNone : worst_with(*above);
      const double worst = std::min(worst_below, worst_above);
      if (found != nullptr ? worst > best.worst : worst >= best.worst) return found != nullptr;
      const Weighed& partner = worst_below <= worst_above ? *--below : *above++;
      budget_.spend(1);
      if ((found != nullptr && worst == best.worst && found->order < partner.order) ||
          !board_.can_swap(piece, partner.piece)) {
        continue;
      }
      best = {worst, piece, partner.piece, rank};
      found = &partner;
    }
  }

  // The tables of the busiest rank, those with the most time there first.
  std::vector<size_t> tables_there() const {
    std::vector<size_t> tables = board_.everywhere();
    for (const Board::Piece& piece : board_.pieces(busiest_)) tables.push_back(piece.table);
    std::vector<std::pair<double, size_t>> weighed;
    std::sort(tables.begin(), tables.end());
    tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
    for (const size_t t : tables) weighed.emplace_back(-weight_there(t), t);
    const size_t count = std::min(kTablesToReconsider, weighed.size());
    std::partial_sort(weighed.begin(), weighed.begin() + static_cast<std::ptrdiff_t>(count), weighed.end());
    tables.clear();
    for (size_t i = 0; i < count; ++i) tables.push_back(weighed[i].second);
    return tables;
  }

  double weight_there(size_t table) const {
    double weight = 0;
    const std::vector<int>& ranks = board_.ranks_of(table);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == busiest_) weight += board_.load_of({table, i});
    }
    return weight;
  }

  bool relieve_by_tables() {
    const std::vector<size_t> tables = tables_there();
    for (const size_t table : tables) {
      for (const size_t option : chooser_.alternatives(table)) {
        if (budget_.over()) return false;
        if (replaced(table, option)) return true;
      }
    }
    return false;
  }

  // Takes the table from the board and places it with another option. Undoes that and returns false unless it is a
  // gain.
  bool replaced(size_t table, size_t option) {
    const std::vector<double> loads = board_.loads();
    const size_t old_option = board_.option_of(table);
    const std::vector<int> old_ranks = board_.ranks_of(table);
    board_.take(table);
    if (board_.place(table, option)) {
      const std::vector<int>& ranks = board_.ranks_of(table);
      const bool better =
          load(busiest_) < limit_ && std::all_of(ranks.begin(), ranks.end(), [&](int r) { return load(r) < limit_; });
      if (better) return true;
      board_.take(table);
    }
    board_.put(table, old_option, old_ranks);
    board_.set_loads(loads);
    return false;
  }

  const Chooser& chooser_;
  Board& board_;
  Budget& budget_;
  std::vector<size_t> by_load_;  // ranks, the idlest first
  int busiest_ = 0;
  double limit_ = 0;  // after a step, the ranks that it changed must have less load than this
};

}  // namespace

void improve(const Chooser& chooser, Board& board, Budget& budget) { Improver(chooser, board, budget).run(); }

}  // namespace tessera
