// Two copies of a published model's tables. One is read; deltas are written to the other, which then takes its place,
// and the one before is written in its turn, once its last reader has gone.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/files.h"
#include "publishing/patched_model.h"
#include "publishing/publication.h"
#include "tessera/predictor.h"

namespace tessera::publishing {

// A delta that was read, and belongs behind the one before it.
struct Taken {
  Publication publication;
  Delta content;
};
using TakenDelta = std::shared_ptr<const Taken>;

inline constexpr size_t kAtOnce = 16;                       // deltas in memory
inline constexpr auto kPatience = std::chrono::seconds(1);  // for the readers of the version before the current one

class FollowedTables {
 public:
  FollowedTables() = default;  // empty: of no model
  // Both are base-`number` of a directory, which is kept from being removed. `verify`: its bytes are compared with its
  // checksums. Errors as of read_publication() and open_packed_model().
  FollowedTables(std::string directory, int64_t number, bool verify);
  bool empty() const { return directory_.empty(); }
  const Publication& base() const { return base_; }
  const Publication& taken() const { return taken_; }  // what current() is of
  // Whether some of the copies have seen a later one than `number`.
  bool is_past(int64_t number) const;

  // Only these rows of deltas are written. Before any is.
  void keep(std::optional<KeptRows> rows) { kept_ = std::move(rows); }
  const std::optional<KeptRows>& kept() const { return kept_; }

  // delta-`number`, which belongs behind `before`. kDataLoss, kUnimplemented name the file.
  TakenDelta read(int64_t number, const Publication& before) const;

  InferenceModel current() const;
  bool other_is_free() const;
  bool wait_for_other(std::chrono::milliseconds most = kPatience) const;  // false: somebody reads it still
  // The other copy with these deltas behind current(). Nobody reads it. It is current() after turn(); until then, and
  // where that never comes, what was current() stays.
  InferenceModel ahead(std::span<const TakenDelta> deltas);
  void turn(std::span<const TakenDelta> deltas);
  // `reader` reads current() while it lives.
  void read_by(const std::shared_ptr<Predictor>& reader);

 private:
  struct Side {
    PatchedModel tables;
    int64_t applied = 0;              // the last publication whose rows it has
    std::vector<TakenDelta> missing;  // that the other side has
    std::vector<std::weak_ptr<Predictor>> readers;
  };
  Side& other() { return sides_[1 - read_side_]; }
  InferenceModel model_of(const Side& side, const Publication& what) const;

  std::string directory_;
  checkpoint::Descriptor lock_;
  Publication base_, taken_;
  std::optional<KeptRows> kept_;
  std::array<Side, 2> sides_;
  size_t read_side_ = 0;
};

}  // namespace tessera::publishing
