#include "planner/planned_tables.h"

#include <algorithm>
#include <memory>
#include <set>

#include "modules/kernel_config.h"
#include "planner/rank_rules.h"

namespace tessera {

namespace {

// One attribute of the model. Children are in the order in which they were added.
struct Node {
  std::string name;
  const PlannerModule* module = nullptr;
  std::vector<std::unique_ptr<Node>> children;

  Node* child(const std::string& wanted) {
    for (const auto& c : children) {
      if (c->name == wanted) return c.get();
    }
    children.push_back(std::make_unique<Node>());
    children.back()->name = wanted;
    return children.back().get();
  }
};

void insert(Node& root, const PlannerModule& module) {
  Node* node = &root;
  for (size_t start = 0; !module.path.empty() && start <= module.path.size();) {
    const size_t dot = std::min(module.path.find('.', start), module.path.size());
    if (dot == start) bad_input(str_cat("module path \"", module.path, "\" has an empty name between its dots"));
    node = node->child(module.path.substr(start, dot - start));
    start = dot + 1;
  }
  if (node->module != nullptr) bad_input(str_cat("two modules have the path \"", module.path, "\""));
  node->module = &module;
}

std::vector<const PlannerModule*> collections_in_search_order(const std::vector<PlannerModule>& modules) {
  Node root;
  for (const PlannerModule& m : modules) insert(root, m);
  std::vector<const PlannerModule*> found;
  std::vector<const Node*> stack{&root};
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (node->module != nullptr && node->module->kind != PlannerModule::Kind::kDense) {
      if (!node->children.empty()) {
        bad_input(str_cat("module \"", node->module->path, "\" is a collection, so it cannot contain \"",
                          node->children.front()->name, "\""));
      }
      found.push_back(node->module);
      continue;
    }
    for (const auto& child : node->children) stack.push_back(child.get());
  }
  return found;
}

void check(const EmbeddingBagConfig& table) {
  constexpr int64_t kMostCells = INT64_MAX / 16;
  if (table.num_embeddings <= 0 || table.embedding_dim <= 0) {
    bad_input(str_cat("table ", table.name, " has ", table.num_embeddings, " x ", table.embedding_dim,
                      " cells; both sizes must be positive"));
  }
  if (table.num_embeddings > kMostCells / table.embedding_dim) {
    bad_input(str_cat("table ", table.name, " has more than ", kMostCells, " cells"));
  }
}

}  // namespace

std::vector<PlannedTable> tables_in_search_order(const std::vector<PlannerModule>& modules,
                                                 const PlannerOptions& options) {
  static const ParameterConstraints kNone;
  if (options.batch_size < 0) bad_input(str_cat("batch_size ", options.batch_size, " is negative"));
  std::vector<PlannedTable> out;
  for (const PlannerModule* module : collections_in_search_order(modules)) {
    std::set<std::string> names;
    for (const EmbeddingBagConfig& table : module->tables) {
      if (!names.insert(table.name).second) {
        bad_input(str_cat("module \"", module->path, "\" has two tables named ", table.name));
      }
      const auto found = options.constraints.find(table.name);
      ParameterConstraints constraints = found == options.constraints.end() ? kNone : found->second;
      check(table);
      check_constraints(constraints, table.name, options.topology.world_size);
      constraints.compute_kernels = compute_kernel_choices(constraints.compute_kernels);
      constraints.is_weighted = module->is_weighted.value_or(constraints.is_weighted);
      out.push_back({module, &table, std::move(constraints)});
    }
  }
  return out;
}

}  // namespace tessera
