// Two copies of a published model's tables. One is read while deltas are written to the other; then they change places.
// The old one is written in turn when its last reader has gone.
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

// A delta that was read and follows the previous one.
struct Taken {
  Publication publication;
  Delta content;
};
using TakenDelta = std::shared_ptr<const Taken>;

inline constexpr size_t kAtOnce = 16;                       // deltas in memory
inline constexpr auto kPatience = std::chrono::seconds(1);  // wait for readers of the old version

class FollowedTables {
 public:
  FollowedTables() = default;  // empty: no model
  // Both copies start as base-`number` of a directory, which is then protected from removal. `verify`: compare its
  // bytes with its checksums. Errors are those of read_publication() and open_packed_model().
  FollowedTables(std::string directory, int64_t number, bool verify);
  bool empty() const { return directory_.empty(); }
  const Publication& base() const { return base_; }
  const Publication& taken() const { return taken_; }  // the publication of current()
  // True if one of the copies has applied a later publication than `number`.
  bool is_past(int64_t number) const;

  // Limits the rows that are written from deltas. Call it before the first delta.
  void keep(std::optional<KeptRows> rows) { kept_ = std::move(rows); }
  const std::optional<KeptRows>& kept() const { return kept_; }

  // Reads delta-`number`, which must follow `before`. kDataLoss, kUnimplemented: the error names the file.
  TakenDelta read(int64_t number, const Publication& before) const;

  InferenceModel current() const;
  bool other_is_free() const;
  bool wait_for_other(std::chrono::milliseconds most = kPatience) const;  // false: somebody still reads it
  // Applies these deltas after current() to the other copy, which nobody reads. turn() makes it current(); without
  // turn() the old one stays current().
  InferenceModel ahead(std::span<const TakenDelta> deltas);
  void turn(std::span<const TakenDelta> deltas);
  // `reader` reads current() while it lives.
  void read_by(const std::shared_ptr<Predictor>& reader);

 private:
  struct Side {
    PatchedModel tables;
    int64_t applied = 0;              // the last publication that was applied
    std::vector<TakenDelta> missing;  // applied only to the other side
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
