// Figures of machines, as given to `tessera plan --topology`.
#include "fuzz.h"
#include "tessera/machine.h"

namespace tessera::fuzz {

void fuzz_topology(Input input) {
  taken([&] {
    const Machine machine = Machine::from_json(std::string(text_of(input)), "topology.json");
    const std::string text = machine.json();
    require(Machine::from_json(text, "again").json() == text, "figures that are written are read as they were");
    (void)machine.kernel("fused");
    taken([&] { machine.check_fits(2, 2, "cpu"); });
  });
}

}  // namespace tessera::fuzz
