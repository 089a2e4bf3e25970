// tessera/stage_work.h - the amount of work in each stage of a training step, in the units that determine its time, and
// the cost of each unit in seconds.
#pragma once

#include <array>
#include <concepts>

namespace tessera {

// A unit of a stage's work. `key` with "_ns" is its name in a topology file (docs/calibration.md).
template <class Work>
struct WorkUnit {
  const char* key;
  double Work::*count;
};

// A struct of counts that also lists them.
template <class T>
concept StageWork = requires {
  { T::units()[0] } -> std::convertible_to<WorkUnit<T>>;
};

// `calls` counts calls of the stage. A piece is an id block: the ids of a feature on their way between two ranks.

// Distributes ids to the ranks that hold their rows.
struct RouteWork {
  double calls = 0, pieces = 0, bags = 0;
  double ids = 0;      // ids that all go to one rank
  double cut_ids = 0;  // ids that are distributed by row
  static constexpr auto units() {
    return std::to_array<WorkUnit<RouteWork>>({{"call", &RouteWork::calls},
                                               {"piece", &RouteWork::pieces},
                                               {"bag", &RouteWork::bags},
                                               {"id", &RouteWork::ids},
                                               {"cut_id", &RouteWork::cut_ids}});
  }
};

// Prepares the ranks' messages for the kernels.
struct UnpackWork {
  double calls = 0, pieces = 0, bags = 0, ids = 0;
  double uncertain_bags = 0;  // bags that may or may not have ids in a part of the rows
  static constexpr auto units() {
    return std::to_array<WorkUnit<UnpackWork>>({{"call", &UnpackWork::calls},
                                                {"piece", &UnpackWork::pieces},
                                                {"bag", &UnpackWork::bags},
                                                {"id", &UnpackWork::ids},
                                                {"uncertain_bag", &UnpackWork::uncertain_bags}});
  }
};

// Turns received rows into the output (combine), and its gradient into rows (split).
struct RowsWork {
  double calls = 0, pieces = 0;
  double bags = 0;  // for sequences: rows
  double uncertain_bags = 0, bytes = 0;
  static constexpr auto units() {
    return std::to_array<WorkUnit<RowsWork>>({{"call", &RowsWork::calls},
                                              {"piece", &RowsWork::pieces},
                                              {"bag", &RowsWork::bags},
                                              {"uncertain_bag", &RowsWork::uncertain_bags},
                                              {"byte", &RowsWork::bytes}});
  }
};

// Sums gradients of data-parallel tables over ranks and applies them.
struct DataParallelWork {
  double calls = 0, tables = 0;
  double touched_rows = 0;  // with a gradient on any rank
  double ids = 0;           // of this rank
  double rows = 0;          // of the tables
  double bytes = 0;         // of the gradients of touched rows
  static constexpr auto units() {
    return std::to_array<WorkUnit<DataParallelWork>>({{"call", &DataParallelWork::calls},
                                                      {"table", &DataParallelWork::tables},
                                                      {"touched_row", &DataParallelWork::touched_rows},
                                                      {"id", &DataParallelWork::ids},
                                                      {"row", &DataParallelWork::rows},
                                                      {"byte", &DataParallelWork::bytes}});
  }
};

// Work of the dense part beside its layers: the loss, and values that are written and read again.
struct BesideLayersWork {
  double calls = 0;
  double layers = 0;  // includes interactions
  double samples = 0;
  double vector_pairs = 0;  // samples * vectors^2 of an interaction
  double bytes = 0;         // of the layers' values
  static constexpr auto units() {
    return std::to_array<WorkUnit<BesideLayersWork>>({{"call", &BesideLayersWork::calls},
                                                      {"layer", &BesideLayersWork::layers},
                                                      {"sample", &BesideLayersWork::samples},
                                                      {"vector_pair", &BesideLayersWork::vector_pairs},
                                                      {"byte", &BesideLayersWork::bytes}});
  }
};

// The optimizer's step over the dense parameters.
struct DenseUpdateWork {
  double calls = 0, tensors = 0;
  double bytes = 0;  // of parameters
  static constexpr auto units() {
    return std::to_array<WorkUnit<DenseUpdateWork>>(
        {{"call", &DenseUpdateWork::calls}, {"tensor", &DenseUpdateWork::tensors}, {"byte", &DenseUpdateWork::bytes}});
  }
};

template <StageWork Work>
Work& operator+=(Work& a, const Work& b) {
  for (const auto& unit : Work::units()) a.*unit.count += b.*unit.count;
  return a;
}
template <StageWork Work>
Work operator*(double times, Work work) {
  for (const auto& unit : Work::units()) work.*unit.count *= times;
  return work;
}

// The cost of a stage: seconds per unit.
template <StageWork Work>
struct StageFigures {
  Work seconds = {};
  double of(const Work& work) const {
    double sum = 0;
    for (const auto& unit : Work::units()) sum += seconds.*unit.count * (work.*unit.count);
    return sum;
  }
};

}  // namespace tessera
