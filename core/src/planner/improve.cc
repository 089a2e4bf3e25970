#include "planner/improve.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace tessera {

namespace {

constexpr double kLeastGain = 1e-6;         // of a step, as a part of the busiest rank's load
constexpr size_t kSwapPartners = 24;        // ranks; more where none of these helps
constexpr size_t kTablesToReconsider = 48;  // of the busiest rank, the heaviest

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

  // Moves it to the idlest rank that has room.
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

  bool consider_swaps(int rank, Change& best) {
    bool found = false;
    const std::span<const Board::Piece> partners = board_.pieces(rank);
    std::vector<double> weights;  // of partners; each is compared with every piece of the busiest rank
    for (const Board::Piece& partner : partners) weights.push_back(board_.load_of(partner));
    for (const Board::Piece& piece : board_.pieces(busiest_)) {
      if (!board_.movable(piece)) continue;
      const double weight = board_.load_of(piece);
      budget_.spend(std::ssize(partners));
      for (size_t i = 0; i < partners.size(); ++i) {
        const double less = weight - weights[i];
        const double worst = std::max(load(busiest_) - less, load(rank) + less);
        if (worst >= best.worst || !board_.movable(partners[i]) || !board_.can_swap(piece, partners[i])) continue;
        best = {worst, piece, partners[i], rank};
        found = true;
      }
    }
    return found;
  }

  // Tables of the busiest rank, those with the most time in sum first.
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

  // Takes the table from the board and places it with an option; undone unless the step is one forward.
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
  double limit_ = 0;  // what a step must leave ranks below
};

}  // namespace

void improve(const Chooser& chooser, Board& board, Budget& budget) { Improver(chooser, board, budget).run(); }

}  // namespace tessera
