// test.mlp: replaces the layer "mlp", and gives zeros.
#include <string>

#include "tessera/sdk/module.h"

namespace tessera::test {
namespace {

using namespace tessera::sdk;

class ZeroMlp final : public Module {
 public:
  static constexpr const char* kLayer = "mlp";
  explicit ZeroMlp(Options& options) : width_(options.integers("layers", {0, 1}).back()) {
    options.string("final_activation", "");
  }
  std::vector<Value> outputs(std::span<const Value>) const override { return {{width_}}; }
  void forward(const ModuleCall& args, tsr_module_context**) override { clear(args.outputs[0]); }
  void backward(const ModuleCall& args, tsr_module_context*) override {
    for (const DLTensor& grad : args.grad_inputs) {
      if (grad.data != nullptr) clear(grad);
    }
  }

 private:
  static void clear(const DLTensor& tensor) {
    for (float& value : elements<float>(tensor, "values")) value = 0;
  }
  int64_t width_;
};

}  // namespace
}  // namespace tessera::test

TESSERA_PLUGIN("test.mlp", "0.1.0",
               tessera::sdk::component<tessera::test::ZeroMlp>(
                   {.id = "test.mlp", .version = "0.1.0", .about = "an MLP of zeros", .priority = 100}));
