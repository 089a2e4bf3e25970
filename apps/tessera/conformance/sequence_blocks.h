// Blocks and models over sequences as graphs of layers, with the parameter names of the recorded cases.
#pragma once

#include <string>

#include "conformance/sequence_net.h"

namespace tessera::cli {

// Attention with queries from `a`, keys and values from `b`; parameters begin with `prefix`.
SequenceNet::Node attention_of(SequenceNet& net, const SequenceNet::Node& a, const SequenceNet::Node& b,
                               const json& options, const std::string& prefix);
// A block of options.style: sasrec, pre_ln, post_ln or ligr.
SequenceNet::Node block(SequenceNet& net, const SequenceNet::Node& x, const json& options, const std::string& prefix);

// Times of a sequence's rows and of the samples' next events; "" without.
struct Times {
  SequenceNet::Node rows, next;
};
Times hstu_times(const CaseContext& c, SequenceNet& net, const SequenceNet::Node& x);
SequenceNet::Node hstu_layer(SequenceNet& net, const SequenceNet::Node& x, const Times& times, const json& options,
                             const std::string& prefix);
// A model over rows of items: positions, blocks, and what is at the end.
SequenceNet::Node model(SequenceNet& net, const SequenceNet::Node& items, const Times& times, const json& options,
                        bool hstu);

// Options of the layer "attention" for one of STU.
json stu_options(const json& options, bool targets);
// The parts u, v, q and k of a layer of STU: outputs 0 to 3 of a node.
SequenceNet::Node stu_parts(SequenceNet& net, const SequenceNet::Node& x, const json& options,
                            const std::string& prefix);
// `targets`: numbers of targets; "" without. `before`: keys and values, side by side, of rows before those of x; "" if
// there are none.
SequenceNet::Node stu_layer(SequenceNet& net, const SequenceNet::Node& x, const SequenceNet::Node& targets,
                            const json& options, const std::string& prefix, const SequenceNet::Node& before = {});

// SimpleContextualizedMLP, and linear layers whose parameters are `name`.w and `name`.b.
SequenceNet::Node swish_mlp(SequenceNet& net, const SequenceNet::Node& x, const std::string& prefix, double eps = 1e-5);
SequenceNet::Node swish_norm(SequenceNet& net, const SequenceNet::Node& x, const std::string& name, double eps = 1e-5);
SequenceNet::Node named_linear(SequenceNet& net, const SequenceNet::Node& x, const std::string& name);
json calendar_options(const json& pairs, const json& pi);

}  // namespace tessera::cli
