// A sharder under test, which is asked for layouts and routes. Its answers are checked for what every answer must be.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tessera/abi/sharder.h"
#include "verify/check.h"
#include "verify/kernel_bed.h"
#include "verify/layouts.h"

namespace tessera::cli::verify {

inline constexpr const char* kLayoutRule = "abi/sharder.h, tsr_layout";

// The arguments with a struct longer than the plugin knows.
template <class T>
struct Longer {
  T value;
  unsigned char more[32];
};

inline tsr_table table_of(const Question& q, uint32_t num_features, const char* const* features) {
  return {sizeof(tsr_table), 0, q.name.c_str(), q.rows,  q.cols, {kDLFloat, 32, 1},
          q.pooling,         0, num_features,   features};
}
inline tsr_topology topology_of(const Question& q, const uint64_t* bytes) {
  return {sizeof(tsr_topology), 0, q.world, q.local, q.device, 0, bytes};
}

// A sharder, and its last answer.
class Asked {
 public:
  explicit Asked(Subject& subject) : subject_(subject), part_(subject.make()), api_(part_.api<tsr_sharder>()) {}

  std::vector<OneLayout> layouts(const Question& q, bool longer = false, bool tell = true) const {
    if (tell) subject_.doing("propose, " + q.text());
    Sink sink;
    Call call;
    const tsr_code code = propose(q, longer, sink.raw(), call);
    if (!sink.wrong.empty()) throw Broken(q.text() + ": " + sink.wrong, kLayoutRule);
    call.succeeds(code, str_cat("propose for a ", q.text()));
    return sink.layouts;
  }

  // Calls with a sink that accepts no layout.
  tsr_code refused(const Question& q, Call& call) const {
    const tsr_layout_sink sink{sizeof(tsr_layout_sink), 0, nullptr,
                               [](const tsr_layout_sink*, const tsr_layout*, tsr_error* err) {
                                 if (err != nullptr) {
                                   std::strcpy(err->message, "verify takes no layout");
                                   err->code = TSR_RESOURCE_EXHAUSTED;
                                 }
                                 return static_cast<tsr_code>(TSR_RESOURCE_EXHAUSTED);
                               }};
    return propose(q, false, &sink, call);
  }

  const tsr_sharder& api() const { return api_; }
  bool keeps_ids() const { return (api_.flags & TSR_SHARDER_KEEPS_IDS) != 0; }
  void* self() const { return part_.self(); }

 private:
  struct Sink {
    std::vector<OneLayout> layouts;
    std::string wrong;
    const tsr_layout_sink* raw() {
      raw_ = {sizeof(tsr_layout_sink), 0, this, [](const tsr_layout_sink* s, const tsr_layout* l, tsr_error*) {
                static_cast<Sink*>(s->self)->take(l);
                return static_cast<tsr_code>(TSR_OK);
              }};
      return &raw_;
    }

   private:
    void take(const tsr_layout* l) {
      if (!TSR_HAS(tsr_layout, l, parts) || l->num_parts == 0) return void(wrong = "a layout has no parts");
      OneLayout layout;
      for (uint32_t i = 0; i < l->num_parts; ++i) {
        const auto& part = *reinterpret_cast<const tsr_layout_part*>(reinterpret_cast<const char*>(l->parts) +
                                                                     size_t{l->part_stride} * i);
        if (!TSR_HAS(tsr_layout_part, &part, rectangles) || part.num_rectangles == 0)
          return void(wrong = "a layout has a part without rectangles");
        if (((l->flags | part.flags) & TSR_MUST_UNDERSTAND) != 0)
          return void(wrong = "a layout has flags that no host understands");
        if (part.rectangle_stride < TSR_END_OF(tsr_rectangle, cols))
          return void(wrong = str_cat("rectangle_stride is ", part.rectangle_stride, ", less than a rectangle"));
        OnePart one{part.placement, part.combine, part.row_set, {}};
        for (uint32_t k = 0; k < part.num_rectangles; ++k) {
          one.rectangles.push_back(*reinterpret_cast<const tsr_rectangle*>(
              reinterpret_cast<const char*>(part.rectangles) + size_t{part.rectangle_stride} * k));
        }
        layout.parts.push_back(std::move(one));
      }
      layout.num_row_sets = l->num_row_sets;
      if (TSR_FITS(tsr_layout, l, cookie)) layout.cookie = l->cookie;
      layouts.push_back(std::move(layout));
    }
    tsr_layout_sink raw_{};
  };

  tsr_code propose(const Question& q, bool longer, const tsr_layout_sink* sink, Call& call) const {
    const char* features[] = {"feature"};
    const std::vector<uint64_t> bytes(q.world, uint64_t{1} << 34);
    Longer<tsr_table> table{table_of(q, 1, features), {}};
    Longer<tsr_topology> topology{topology_of(q, bytes.data()), {}};
    Longer<tsr_constraints> limits{{sizeof(tsr_constraints), 0, q.min_partition, q.max_shards}, {}};
    if (longer) {
      table.value.struct_size = sizeof(table);
      topology.value.struct_size = sizeof(topology);
      limits.value.struct_size = sizeof(limits);
      std::memset(table.more, 0xC3, sizeof(table.more));
      std::memset(topology.more, 0xC3, sizeof(topology.more));
      std::memset(limits.more, 0xC3, sizeof(limits.more));
    }
    return api_.propose(part_.self(), &table.value, &topology.value, &limits.value, sink, call.out());
  }

  Subject& subject_;
  Made part_;
  const tsr_sharder& api_;
};

}  // namespace tessera::cli::verify
