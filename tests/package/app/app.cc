// An application outside the tree: asks the sharder FOLDER ID how it divides a table.
#include <tessera/abi/sharder.h>
#include <tessera/runtime.h>

#include <iostream>

int main(int, char** argv) {
  const tessera::Runtime runtime({.plugin_path = {argv[1]}, .require = {argv[2]}});
  const tessera::ComponentPtr sharder = runtime.create(TSR_SHARDER_KIND, argv[2]);
  const tsr_table table{sizeof(tsr_table), 0, "t", 7, 4, {kDLFloat, 32, 1}, TSR_POOLING_SUM, 0, 0, nullptr};
  const tsr_topology topology{sizeof(tsr_topology), 0, 2, 2, kDLCPU, 0, nullptr};
  const tsr_constraints constraints{sizeof(tsr_constraints), 0, 0, 0};
  uint32_t rectangles = 0;
  const auto add = [](const tsr_layout_sink* sink, const tsr_layout* layout, tsr_error*) -> tsr_code {
    *static_cast<uint32_t*>(sink->self) = layout->parts[0].num_rectangles;
    return TSR_OK;
  };
  const tsr_layout_sink sink{sizeof(tsr_layout_sink), 0, &rectangles, add};
  tessera::AbiError error;
  error.check(
      sharder->api<tsr_sharder>().propose(sharder->self(), &table, &topology, &constraints, &sink, error.out()));
  std::cout << sharder->id() << " proposes " << rectangles << " rectangles\n";
  return 0;
}
