// The layout of the structs of tessera.h. While it is a draft, a line may change together with CHANGELOG.md; once it is
// final, lines are only added.
#include "../abi/layout.h"
#include "tessera/tessera.h"

SIZE(tsr_runtime_options, 32);
FIELD(tsr_runtime_options, struct_size, 0);
FIELD(tsr_runtime_options, threads, 4);
FIELD(tsr_runtime_options, plugin_path, 8);
FIELD(tsr_runtime_options, require, 16);
FIELD(tsr_runtime_options, num_plugin_paths, 24);
FIELD(tsr_runtime_options, num_required, 28);

SIZE(tsr_process_group_options, 56);
FIELD(tsr_process_group_options, struct_size, 0);
FIELD(tsr_process_group_options, world_size, 4);
FIELD(tsr_process_group_options, rank, 8);
FIELD(tsr_process_group_options, local_rank, 12);
FIELD(tsr_process_group_options, local_world_size, 16);
FIELD(tsr_process_group_options, master_port, 20);
FIELD(tsr_process_group_options, master_addr, 24);
FIELD(tsr_process_group_options, token, 32);
FIELD(tsr_process_group_options, backend, 40);
FIELD(tsr_process_group_options, timeout_s, 48);

SIZE(tsr_process_group_info, 32);
FIELD(tsr_process_group_info, struct_size, 0);
FIELD(tsr_process_group_info, rank, 4);
FIELD(tsr_process_group_info, world_size, 8);
FIELD(tsr_process_group_info, local_rank, 12);
FIELD(tsr_process_group_info, local_world_size, 16);
FIELD(tsr_process_group_info, reserved, 20);
FIELD(tsr_process_group_info, backend, 24);

SIZE(tsr_model_parallel_options, 32);
FIELD(tsr_model_parallel_options, struct_size, 0);
FIELD(tsr_model_parallel_options, reserved, 4);
FIELD(tsr_model_parallel_options, model, 8);
FIELD(tsr_model_parallel_options, plan, 16);
FIELD(tsr_model_parallel_options, planner, 24);

SIZE(tsr_collection_info, 48);
FIELD(tsr_collection_info, struct_size, 0);
FIELD(tsr_collection_info, kind, 4);
FIELD(tsr_collection_info, num_tables, 8);
FIELD(tsr_collection_info, num_features, 12);
FIELD(tsr_collection_info, num_outputs, 16);
FIELD(tsr_collection_info, num_shards, 20);
FIELD(tsr_collection_info, width, 24);
FIELD(tsr_collection_info, steps, 32);
FIELD(tsr_collection_info, dropped_ids, 40);

SIZE(tsr_table_info, 40);
FIELD(tsr_table_info, struct_size, 0);
FIELD(tsr_table_info, reserved, 4);
FIELD(tsr_table_info, name, 8);
FIELD(tsr_table_info, key, 16);
FIELD(tsr_table_info, rows, 24);
FIELD(tsr_table_info, dim, 32);

SIZE(tsr_output_info, 32);
FIELD(tsr_output_info, struct_size, 0);
FIELD(tsr_output_info, table, 4);
FIELD(tsr_output_info, name, 8);
FIELD(tsr_output_info, dim, 16);
FIELD(tsr_output_info, column, 24);

SIZE(tsr_batch, 80);
FIELD(tsr_batch, struct_size, 0);
FIELD(tsr_batch, num_keys, 4);
FIELD(tsr_batch, keys, 8);
FIELD(tsr_batch, values, 16);
FIELD(tsr_batch, lengths, 24);
FIELD(tsr_batch, offsets, 32);
FIELD(tsr_batch, weights, 40);
FIELD(tsr_batch, strides, 48);
FIELD(tsr_batch, inverse, 56);
FIELD(tsr_batch, finished, 64);
FIELD(tsr_batch, reserved, 68);
FIELD(tsr_batch, refused, 72);

SIZE(tsr_step_info, 16);
FIELD(tsr_step_info, struct_size, 0);
FIELD(tsr_step_info, num_outputs, 4);
FIELD(tsr_step_info, all_finished, 8);
FIELD(tsr_step_info, any_finished, 12);

SIZE(tsr_shard_info, 48);
FIELD(tsr_shard_info, struct_size, 0);
FIELD(tsr_shard_info, table, 4);
FIELD(tsr_shard_info, shard, 8);
FIELD(tsr_shard_info, num_states, 12);
FIELD(tsr_shard_info, rows, 16);
FIELD(tsr_shard_info, cols, 24);
FIELD(tsr_shard_info, row, 32);
FIELD(tsr_shard_info, col, 40);

SIZE(tsr_state_info, 16);
FIELD(tsr_state_info, struct_size, 0);
FIELD(tsr_state_info, per_row, 4);
FIELD(tsr_state_info, name, 8);

CONSTANT(TSR_COLLECTION_BAGS, 0);
CONSTANT(TSR_COLLECTION_SEQUENCES, 1);

typedef int tessera_c_layout_is_a_translation_unit;
