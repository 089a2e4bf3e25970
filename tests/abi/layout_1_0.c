// The layout of ABI 1.0, frozen. Structs may grow at their end, in a new minor: then a line is added here, never
// changed. A line that no longer compiles is a break of every plugin out there.
#include "layout.h"
#include "tessera/abi/collective.h"
#include "tessera/abi/draft/device_ops.h"
#include "tessera/abi/kernel.h"
#include "tessera/abi/module.h"

CONSTANT(TSR_ABI_MAJOR, 1);
CONSTANT(TSR_ABI_MINOR, 0);

FROZEN(tsr_error, 512);
FIELD(tsr_error, struct_size, 0);
FIELD(tsr_error, code, 4);
FIELD(tsr_error, rank, 8);
FIELD(tsr_error, message, 12);

SIZE(tsr_host, 64);
FIELD(tsr_host, struct_size, 0);
FIELD(tsr_host, abi_minor, 4);
FIELD(tsr_host, self, 8);
FIELD(tsr_host, log, 16);
FIELD(tsr_host, alloc, 24);
FIELD(tsr_host, free, 32);
FIELD(tsr_host, parallel_for, 40);
FIELD(tsr_host, num_threads, 48);
FIELD(tsr_host, extension, 56);

FROZEN(tsr_part, 16);
FIELD(tsr_part, component, 0);
FIELD(tsr_part, self, 8);

SIZE(tsr_component, 80);
FIELD(tsr_component, struct_size, 0);
FIELD(tsr_component, priority, 4);
FIELD(tsr_component, id, 8);
FIELD(tsr_component, kind, 16);
FIELD(tsr_component, version, 24);
FIELD(tsr_component, about, 32);
FIELD(tsr_component, api, 40);
FIELD(tsr_component, probe, 48);
FIELD(tsr_component, create, 56);
FIELD(tsr_component, destroy, 64);
FIELD(tsr_component, extension, 72);

SIZE(tsr_plugin, 48);
FIELD(tsr_plugin, struct_size, 0);
FIELD(tsr_plugin, abi_minor, 4);
FIELD(tsr_plugin, min_host_minor, 8);
FIELD(tsr_plugin, num_components, 12);
FIELD(tsr_plugin, name, 16);
FIELD(tsr_plugin, version, 24);
FIELD(tsr_plugin, build, 32);
FIELD(tsr_plugin, components, 40);

FROZEN(tsr_note, 36);
FIELD(tsr_note, owner_size, 0);
FIELD(tsr_note, desc_size, 4);
FIELD(tsr_note, type, 8);
FIELD(tsr_note, owner, 12);
FIELD(tsr_note, abi_major, 20);
FIELD(tsr_note, abi_minor, 24);
FIELD(tsr_note, min_host_minor, 28);
FIELD(tsr_note, epoch, 32);

SIZE(tsr_table, 48);
FIELD(tsr_table, struct_size, 0);
FIELD(tsr_table, pooling, 4);
FIELD(tsr_table, name, 8);
FIELD(tsr_table, rows, 16);
FIELD(tsr_table, cols, 24);
FIELD(tsr_table, dtype, 32);
FIELD(tsr_table, num_features, 36);
FIELD(tsr_table, features, 40);

SIZE(tsr_topology, 24);
FIELD(tsr_topology, struct_size, 0);
FIELD(tsr_topology, world_size, 4);
FIELD(tsr_topology, local_world_size, 8);
FIELD(tsr_topology, device_type, 12);
FIELD(tsr_topology, device_bytes, 16);

SIZE(tsr_constraints, 24);
FIELD(tsr_constraints, struct_size, 0);
FIELD(tsr_constraints, reserved, 4);
FIELD(tsr_constraints, min_partition, 8);
FIELD(tsr_constraints, max_shards, 16);

SIZE(tsr_rectangle, 32);
FIELD(tsr_rectangle, row, 0);
FIELD(tsr_rectangle, rows, 8);
FIELD(tsr_rectangle, col, 16);
FIELD(tsr_rectangle, cols, 24);

SIZE(tsr_layout_part, 32);
FIELD(tsr_layout_part, struct_size, 0);
FIELD(tsr_layout_part, placement, 4);
FIELD(tsr_layout_part, combine, 8);
FIELD(tsr_layout_part, row_set, 12);
FIELD(tsr_layout_part, num_rectangles, 16);
FIELD(tsr_layout_part, rectangle_stride, 20);
FIELD(tsr_layout_part, rectangles, 24);

SIZE(tsr_layout, 32);
FIELD(tsr_layout, struct_size, 0);
FIELD(tsr_layout, num_parts, 4);
FIELD(tsr_layout, part_stride, 8);
FIELD(tsr_layout, num_row_sets, 12);
FIELD(tsr_layout, parts, 16);
FIELD(tsr_layout, cookie, 24);

SIZE(tsr_layout_sink, 24);
FIELD(tsr_layout_sink, struct_size, 0);
FIELD(tsr_layout_sink, reserved, 4);
FIELD(tsr_layout_sink, self, 8);
FIELD(tsr_layout_sink, add, 16);

SIZE(tsr_route, 64);
FIELD(tsr_route, struct_size, 0);
FIELD(tsr_route, num_row_sets, 4);
FIELD(tsr_route, table, 8);
FIELD(tsr_route, topology, 16);
FIELD(tsr_route, cookie, 24);
FIELD(tsr_route, ids, 32);
FIELD(tsr_route, row_sets, 40);
FIELD(tsr_route, local_rows, 48);
FIELD(tsr_route, stream, 56);

SIZE(tsr_sharder, 32);
FIELD(tsr_sharder, struct_size, 0);
FIELD(tsr_sharder, flags, 4);
FIELD(tsr_sharder, propose, 8);
FIELD(tsr_sharder, route, 16);
FIELD(tsr_sharder, unroute, 24);

SIZE(tsr_update, 24);
FIELD(tsr_update, struct_size, 0);
FIELD(tsr_update, reserved, 4);
FIELD(tsr_update, learning_rate, 8);
FIELD(tsr_update, step, 16);

SIZE(tsr_state, 32);
FIELD(tsr_state, struct_size, 0);
FIELD(tsr_state, kind, 4);
FIELD(tsr_state, dtype, 8);
FIELD(tsr_state, flags, 12);
FIELD(tsr_state, start, 16);
FIELD(tsr_state, name, 24);

SIZE(tsr_optimizer, 48);
FIELD(tsr_optimizer, struct_size, 0);
FIELD(tsr_optimizer, flags, 4);
FIELD(tsr_optimizer, state, 8);
FIELD(tsr_optimizer, learning_rate, 16);
FIELD(tsr_optimizer, update_row, 24);
FIELD(tsr_optimizer, update_rows, 32);
FIELD(tsr_optimizer, update_table, 40);

SIZE(tsr_kernel_table, 48);
FIELD(tsr_kernel_table, struct_size, 0);
FIELD(tsr_kernel_table, flags, 4);
FIELD(tsr_kernel_table, name, 8);
FIELD(tsr_kernel_table, rows, 16);
FIELD(tsr_kernel_table, dim, 24);
FIELD(tsr_kernel_table, options, 32);
FIELD(tsr_kernel_table, poolings, 40);
FIELD(tsr_kernel_table, reserved, 44);

SIZE(tsr_start_formula, 32);
FIELD(tsr_start_formula, struct_size, 0);
FIELD(tsr_start_formula, scale, 4);
FIELD(tsr_start_formula, key, 8);
FIELD(tsr_start_formula, first_row, 16);
FIELD(tsr_start_formula, first_col, 24);

SIZE(tsr_start_values, 32);
FIELD(tsr_start_values, struct_size, 0);
FIELD(tsr_start_values, flags, 4);
FIELD(tsr_start_values, self, 8);
FIELD(tsr_start_values, fill, 16);
FIELD(tsr_start_values, formula, 24);

SIZE(tsr_kernel_config, 88);
FIELD(tsr_kernel_config, struct_size, 0);
FIELD(tsr_kernel_config, flags, 4);
FIELD(tsr_kernel_config, mode, 8);
FIELD(tsr_kernel_config, reserved, 12);
FIELD(tsr_kernel_config, compute_kernel, 16);
FIELD(tsr_kernel_config, device, 24);
FIELD(tsr_kernel_config, weight_dtype, 32);
FIELD(tsr_kernel_config, output_dtype, 36);
FIELD(tsr_kernel_config, num_tables, 40);
FIELD(tsr_kernel_config, table_stride, 44);
FIELD(tsr_kernel_config, tables, 48);
FIELD(tsr_kernel_config, optimizer, 56);
FIELD(tsr_kernel_config, optimizer_options, 64);
FIELD(tsr_kernel_config, max_gradient, 72);
FIELD(tsr_kernel_config, start_values, 80);

SIZE(tsr_lookup_feature, 48);
FIELD(tsr_lookup_feature, table, 0);
FIELD(tsr_lookup_feature, pooling, 4);
FIELD(tsr_lookup_feature, bags, 8);
FIELD(tsr_lookup_feature, first_offset, 16);
FIELD(tsr_lookup_feature, output_offset, 24);
FIELD(tsr_lookup_feature, output_stride, 32);
FIELD(tsr_lookup_feature, output, 40);
FIELD(tsr_lookup_feature, listed, 44);

SIZE(tsr_lookup, 80);
FIELD(tsr_lookup, struct_size, 0);
FIELD(tsr_lookup, flags, 4);
FIELD(tsr_lookup, num_features, 8);
FIELD(tsr_lookup, feature_stride, 12);
FIELD(tsr_lookup, num_outputs, 16);
FIELD(tsr_lookup, reserved, 20);
FIELD(tsr_lookup, features, 24);
FIELD(tsr_lookup, ids, 32);
FIELD(tsr_lookup, offsets, 40);
FIELD(tsr_lookup, weights, 48);
FIELD(tsr_lookup, output_rows, 56);
FIELD(tsr_lookup, step, 64);
FIELD(tsr_lookup, time, 72);

SIZE(tsr_backward, 48);
FIELD(tsr_backward, struct_size, 0);
FIELD(tsr_backward, flags, 4);
FIELD(tsr_backward, lookup, 8);
FIELD(tsr_backward, grad_output, 16);
FIELD(tsr_backward, grad_weights, 24);
FIELD(tsr_backward, grad_scale, 32);
FIELD(tsr_backward, update, 40);

FROZEN(tsr_row_gradient, 96);
FIELD(tsr_row_gradient, rows, 0);
FIELD(tsr_row_gradient, values, 48);

SIZE(tsr_rows, 56);
FIELD(tsr_rows, struct_size, 0);
FIELD(tsr_rows, flags, 4);
FIELD(tsr_rows, num_states, 8);
FIELD(tsr_rows, extra_stride, 12);
FIELD(tsr_rows, count, 16);
FIELD(tsr_rows, ids, 24);
FIELD(tsr_rows, weights, 32);
FIELD(tsr_rows, states, 40);
FIELD(tsr_rows, extra, 48);

SIZE(tsr_stored_rows, 32);
FIELD(tsr_stored_rows, struct_size, 0);
FIELD(tsr_stored_rows, flags, 4);
FIELD(tsr_stored_rows, bytes, 8);
FIELD(tsr_stored_rows, size, 16);
FIELD(tsr_stored_rows, stride, 24);

SIZE(tsr_stream_io, 32);
FIELD(tsr_stream_io, struct_size, 0);
FIELD(tsr_stream_io, flags, 4);
FIELD(tsr_stream_io, self, 8);
FIELD(tsr_stream_io, write, 16);
FIELD(tsr_stream_io, read, 24);

SIZE(tsr_kernel_stats, 64);
FIELD(tsr_kernel_stats, struct_size, 0);
FIELD(tsr_kernel_stats, extra_bytes, 4);
FIELD(tsr_kernel_stats, weight_bytes, 8);
FIELD(tsr_kernel_stats, state_bytes, 16);
FIELD(tsr_kernel_stats, other_bytes, 24);
FIELD(tsr_kernel_stats, lookups, 32);
FIELD(tsr_kernel_stats, rows_in_use, 40);
FIELD(tsr_kernel_stats, hits, 48);
FIELD(tsr_kernel_stats, evictions, 56);

SIZE(tsr_workload, 48);
FIELD(tsr_workload, struct_size, 0);
FIELD(tsr_workload, pooling, 4);
FIELD(tsr_workload, rows, 8);
FIELD(tsr_workload, dim, 16);
FIELD(tsr_workload, ids, 24);
FIELD(tsr_workload, bags, 32);
FIELD(tsr_workload, weighted, 40);
FIELD(tsr_workload, reserved, 44);
FIELD(tsr_workload, distinct, 48);
FIELD(tsr_workload, reuse_bytes, 56);
FIELD(tsr_workload, runs, 64);
FIELD(tsr_workload, machine, 72);
FIELD(tsr_workload, update_bytes, 80);

SIZE(tsr_row_cost, 56);
FIELD(tsr_row_cost, row_bytes, 0);
FIELD(tsr_row_cost, reuse_bytes, 8);
FIELD(tsr_row_cost, lookup, 16);
FIELD(tsr_row_cost, update, 24);
FIELD(tsr_row_cost, repeat, 32);
FIELD(tsr_row_cost, bag_forward, 40);
FIELD(tsr_row_cost, bag_backward, 48);

SIZE(tsr_machine, 40);
FIELD(tsr_machine, struct_size, 0);
FIELD(tsr_machine, num_row_costs, 4);
FIELD(tsr_machine, row_cost_stride, 8);
FIELD(tsr_machine, reserved, 12);
FIELD(tsr_machine, row_costs, 16);
FIELD(tsr_machine, run_forward, 24);
FIELD(tsr_machine, run_backward, 32);

SIZE(tsr_estimate, 48);
FIELD(tsr_estimate, struct_size, 0);
FIELD(tsr_estimate, reserved, 4);
FIELD(tsr_estimate, forward_seconds, 8);
FIELD(tsr_estimate, backward_seconds, 16);
FIELD(tsr_estimate, bytes, 24);
FIELD(tsr_estimate, host_bytes, 32);
FIELD(tsr_estimate, storage_bytes, 40);

SIZE(tsr_kernel, 144);
FIELD(tsr_kernel, struct_size, 0);
FIELD(tsr_kernel, flags, 4);
FIELD(tsr_kernel, compute_kernels, 8);
FIELD(tsr_kernel, device_types, 16);
FIELD(tsr_kernel, supports, 24);
FIELD(tsr_kernel, estimate, 32);
FIELD(tsr_kernel, open, 40);
FIELD(tsr_kernel, close, 48);
FIELD(tsr_kernel, forward, 56);
FIELD(tsr_kernel, backward, 64);
FIELD(tsr_kernel, backward_rows, 72);
FIELD(tsr_kernel, apply, 80);
FIELD(tsr_kernel, release, 88);
FIELD(tsr_kernel, save, 96);
FIELD(tsr_kernel, load, 104);
FIELD(tsr_kernel, export_rows, 112);
FIELD(tsr_kernel, import_rows, 120);
FIELD(tsr_kernel, stats, 128);
FIELD(tsr_kernel, adopt_rows, 136);

SIZE(tsr_collective_info, 40);
FIELD(tsr_collective_info, struct_size, 0);
FIELD(tsr_collective_info, flags, 4);
FIELD(tsr_collective_info, capabilities, 8);
FIELD(tsr_collective_info, device_types, 16);
FIELD(tsr_collective_info, reducible, 24);
FIELD(tsr_collective_info, num_reducible, 32);
FIELD(tsr_collective_info, reserved, 36);

SIZE(tsr_rendezvous, 64);
FIELD(tsr_rendezvous, struct_size, 0);
FIELD(tsr_rendezvous, flags, 4);
FIELD(tsr_rendezvous, rank, 8);
FIELD(tsr_rendezvous, world_size, 12);
FIELD(tsr_rendezvous, local_rank, 16);
FIELD(tsr_rendezvous, local_world_size, 20);
FIELD(tsr_rendezvous, device, 24);
FIELD(tsr_rendezvous, master_addr, 32);
FIELD(tsr_rendezvous, master_port, 40);
FIELD(tsr_rendezvous, reserved, 44);
FIELD(tsr_rendezvous, token, 48);
FIELD(tsr_rendezvous, timeout_s, 56);

SIZE(tsr_collective_call, 48);
FIELD(tsr_collective_call, struct_size, 0);
FIELD(tsr_collective_call, flags, 4);
FIELD(tsr_collective_call, stream, 8);
FIELD(tsr_collective_call, timeout_s, 16);
FIELD(tsr_collective_call, label, 24);
FIELD(tsr_collective_call, site, 32);
FIELD(tsr_collective_call, row_elements, 40);

SIZE(tsr_collective, 152);
FIELD(tsr_collective, struct_size, 0);
FIELD(tsr_collective, flags, 4);
FIELD(tsr_collective, describe, 8);
FIELD(tsr_collective, connect, 16);
FIELD(tsr_collective, split, 24);
FIELD(tsr_collective, rank, 32);
FIELD(tsr_collective, world_size, 40);
FIELD(tsr_collective, all_to_all_v, 48);
FIELD(tsr_collective, all_reduce, 56);
FIELD(tsr_collective, reduce_scatter_v, 64);
FIELD(tsr_collective, all_gather_v, 72);
FIELD(tsr_collective, broadcast, 80);
FIELD(tsr_collective, barrier, 88);
FIELD(tsr_collective, wait, 96);
FIELD(tsr_collective, abort, 104);
FIELD(tsr_collective, close, 112);
FIELD(tsr_collective, bytes_sent, 120);
FIELD(tsr_collective, host_of, 128);
FIELD(tsr_collective, status, 136);
FIELD(tsr_collective, wire_bytes, 144);

SIZE(tsr_parameter, 80);
FIELD(tsr_parameter, struct_size, 0);
FIELD(tsr_parameter, flags, 4);
FIELD(tsr_parameter, name, 8);
FIELD(tsr_parameter, dtype, 16);
FIELD(tsr_parameter, init, 20);
FIELD(tsr_parameter, init_values, 24);
FIELD(tsr_parameter, shape, 40);
FIELD(tsr_parameter, ndim, 72);
FIELD(tsr_parameter, reserved, 76);

SIZE(tsr_value, 24);
FIELD(tsr_value, struct_size, 0);
FIELD(tsr_value, flags, 4);
FIELD(tsr_value, dtype, 8);
FIELD(tsr_value, reserved, 12);
FIELD(tsr_value, width, 16);

SIZE(tsr_module_call, 128);
FIELD(tsr_module_call, struct_size, 0);
FIELD(tsr_module_call, flags, 4);
FIELD(tsr_module_call, seed, 8);
FIELD(tsr_module_call, step, 16);
FIELD(tsr_module_call, batch, 24);
FIELD(tsr_module_call, num_inputs, 32);
FIELD(tsr_module_call, num_outputs, 36);
FIELD(tsr_module_call, inputs, 40);
FIELD(tsr_module_call, offsets, 48);
FIELD(tsr_module_call, parameters, 56);
FIELD(tsr_module_call, buffers, 64);
FIELD(tsr_module_call, outputs, 72);
FIELD(tsr_module_call, grad_outputs, 80);
FIELD(tsr_module_call, grad_inputs, 88);
FIELD(tsr_module_call, grad_parameters, 96);
FIELD(tsr_module_call, stream, 104);
FIELD(tsr_module_call, sum_over_ranks, 112);
FIELD(tsr_module_call, ranks, 120);

SIZE(tsr_module, 72);
FIELD(tsr_module, struct_size, 0);
FIELD(tsr_module, flags, 4);
FIELD(tsr_module, parameter, 8);
FIELD(tsr_module, buffer, 16);
FIELD(tsr_module, output, 24);
FIELD(tsr_module, forward, 32);
FIELD(tsr_module, backward, 40);
FIELD(tsr_module, release, 48);
FIELD(tsr_module, device_types, 56);
FIELD(tsr_module, layer, 64);

SIZE(tsr_device_info, 168);
FIELD(tsr_device_info, struct_size, 0);
FIELD(tsr_device_info, warp_size, 4);
FIELD(tsr_device_info, total_bytes, 8);
FIELD(tsr_device_info, free_bytes, 16);
FIELD(tsr_device_info, name, 24);
FIELD(tsr_device_info, memory_bandwidth, 152);
FIELD(tsr_device_info, link_bandwidth, 160);

SIZE(tsr_device_stats, 40);
FIELD(tsr_device_stats, struct_size, 0);
FIELD(tsr_device_stats, flags, 4);
FIELD(tsr_device_stats, held_bytes, 8);
FIELD(tsr_device_stats, peak_bytes, 16);
FIELD(tsr_device_stats, allocations, 24);
FIELD(tsr_device_stats, synchronizes, 32);

FROZEN(tsr_row_target, 48);
FIELD(tsr_row_target, rows, 0);
FIELD(tsr_row_target, cols, 8);
FIELD(tsr_row_target, begin, 16);
FIELD(tsr_row_target, stride, 24);
FIELD(tsr_row_target, scale, 32);
FIELD(tsr_row_target, first_run, 40);
FIELD(tsr_row_target, num_runs, 44);

FROZEN(tsr_row_run, 24);
FIELD(tsr_row_run, begin, 0);
FIELD(tsr_row_run, index, 8);
FIELD(tsr_row_run, col, 16);
FIELD(tsr_row_run, cols, 20);

SIZE(tsr_row_moves, 72);
FIELD(tsr_row_moves, struct_size, 0);
FIELD(tsr_row_moves, device_index, 4);
FIELD(tsr_row_moves, num_targets, 8);
FIELD(tsr_row_moves, num_runs, 12);
FIELD(tsr_row_moves, most_elements, 16);
FIELD(tsr_row_moves, targets, 24);
FIELD(tsr_row_moves, runs, 32);
FIELD(tsr_row_moves, index, 40);
FIELD(tsr_row_moves, scales, 48);
FIELD(tsr_row_moves, packed, 56);
FIELD(tsr_row_moves, spread, 64);

SIZE(tsr_jagged, 40);
FIELD(tsr_jagged, struct_size, 0);
FIELD(tsr_jagged, features, 4);
FIELD(tsr_jagged, batch, 8);
FIELD(tsr_jagged, ids, 16);
FIELD(tsr_jagged, offsets, 24);
FIELD(tsr_jagged, weights, 32);

SIZE(tsr_jagged_output, 48);
FIELD(tsr_jagged_output, struct_size, 0);
FIELD(tsr_jagged_output, flags, 4);
FIELD(tsr_jagged_output, lengths, 8);
FIELD(tsr_jagged_output, offsets, 16);
FIELD(tsr_jagged_output, ids, 24);
FIELD(tsr_jagged_output, weights, 32);
FIELD(tsr_jagged_output, positions, 40);

FROZEN(tsr_bounds_report, 12);
FIELD(tsr_bounds_report, bad_ids, 0);
FIELD(tsr_bounds_report, bad_offsets, 4);
FIELD(tsr_bounds_report, first_bag, 8);

FROZEN(tsr_parameter_update, 56);
FIELD(tsr_parameter_update, value, 0);
FIELD(tsr_parameter_update, gradient, 8);
FIELD(tsr_parameter_update, states, 16);
FIELD(tsr_parameter_update, rows, 32);
FIELD(tsr_parameter_update, columns, 40);
FIELD(tsr_parameter_update, factors, 48);

SIZE(tsr_parameter_updates, 48);
FIELD(tsr_parameter_updates, struct_size, 0);
FIELD(tsr_parameter_updates, device_index, 4);
FIELD(tsr_parameter_updates, formula, 8);
FIELD(tsr_parameter_updates, num_parameters, 12);
FIELD(tsr_parameter_updates, parameters, 16);
FIELD(tsr_parameter_updates, sign, 24);
FIELD(tsr_parameter_updates, decay, 28);
FIELD(tsr_parameter_updates, constants, 32);

SIZE(tsr_binary_cross_entropy, 56);
FIELD(tsr_binary_cross_entropy, struct_size, 0);
FIELD(tsr_binary_cross_entropy, device_index, 4);
FIELD(tsr_binary_cross_entropy, n, 8);
FIELD(tsr_binary_cross_entropy, logits, 16);
FIELD(tsr_binary_cross_entropy, labels, 24);
FIELD(tsr_binary_cross_entropy, grad, 32);
FIELD(tsr_binary_cross_entropy, sum, 40);
FIELD(tsr_binary_cross_entropy, scale, 48);

FROZEN(tsr_gradient, 16);
FIELD(tsr_gradient, values, 0);
FIELD(tsr_gradient, count, 8);

SIZE(tsr_clipping, 48);
FIELD(tsr_clipping, struct_size, 0);
FIELD(tsr_clipping, device_index, 4);
FIELD(tsr_clipping, mode, 8);
FIELD(tsr_clipping, num_gradients, 12);
FIELD(tsr_clipping, gradients, 16);
FIELD(tsr_clipping, max_gradient, 24);
FIELD(tsr_clipping, norm_type, 32);
FIELD(tsr_clipping, norm, 40);

SIZE(tsr_device, 152);
FIELD(tsr_device, struct_size, 0);
FIELD(tsr_device, flags, 4);
FIELD(tsr_device, device_type, 8);
FIELD(tsr_device, reserved, 12);
FIELD(tsr_device, count, 16);
FIELD(tsr_device, info, 24);
FIELD(tsr_device, alloc, 32);
FIELD(tsr_device, free, 40);
FIELD(tsr_device, host_alloc, 48);
FIELD(tsr_device, host_free, 56);
FIELD(tsr_device, copy, 64);
FIELD(tsr_device, fill, 72);
FIELD(tsr_device, stream_create, 80);
FIELD(tsr_device, stream_destroy, 88);
FIELD(tsr_device, synchronize, 96);
FIELD(tsr_device, event_create, 104);
FIELD(tsr_device, event_destroy, 112);
FIELD(tsr_device, event_record, 120);
FIELD(tsr_device, event_wait, 128);
FIELD(tsr_device, event_synchronize, 136);
FIELD(tsr_device, stats, 144);

SIZE(tsr_device_ops, 80);
FIELD(tsr_device_ops, struct_size, 0);
FIELD(tsr_device_ops, flags, 4);
FIELD(tsr_device_ops, combine_rows, 8);
FIELD(tsr_device_ops, split_rows, 16);
FIELD(tsr_device_ops, sum_lengths, 24);
FIELD(tsr_device_ops, check_bounds, 32);
FIELD(tsr_device_ops, permute, 40);
FIELD(tsr_device_ops, bucketize, 48);
FIELD(tsr_device_ops, update_parameters, 56);
FIELD(tsr_device_ops, binary_cross_entropy, 64);
FIELD(tsr_device_ops, clip_gradients, 72);

// The constants.
CONSTANT(TSR_OK, 0);
CONSTANT(TSR_CANCELLED, 1);
CONSTANT(TSR_UNKNOWN, 2);
CONSTANT(TSR_INVALID_ARGUMENT, 3);
CONSTANT(TSR_DEADLINE_EXCEEDED, 4);
CONSTANT(TSR_NOT_FOUND, 5);
CONSTANT(TSR_ALREADY_EXISTS, 6);
CONSTANT(TSR_PERMISSION_DENIED, 7);
CONSTANT(TSR_RESOURCE_EXHAUSTED, 8);
CONSTANT(TSR_FAILED_PRECONDITION, 9);
CONSTANT(TSR_ABORTED, 10);
CONSTANT(TSR_OUT_OF_RANGE, 11);
CONSTANT(TSR_UNIMPLEMENTED, 12);
CONSTANT(TSR_INTERNAL, 13);
CONSTANT(TSR_UNAVAILABLE, 14);
CONSTANT(TSR_DATA_LOSS, 15);
CONSTANT(TSR_LOG_ERROR, 0);
CONSTANT(TSR_LOG_WARNING, 1);
CONSTANT(TSR_LOG_INFO, 2);
CONSTANT(TSR_LOG_DEBUG, 3);
CONSTANT(TSR_PLACE_ANY_RANK, 0);
CONSTANT(TSR_PLACE_ONE_HOST, 1);
CONSTANT(TSR_PLACE_IN_HOST, 2);
CONSTANT(TSR_PLACE_EVERY_RANK, 3);
CONSTANT(TSR_PLACE_HOSTS, 4);
CONSTANT(TSR_COMBINE_CONCAT, 0);
CONSTANT(TSR_COMBINE_SUM, 1);
CONSTANT(TSR_COMBINE_HOST_SUM, 2);
CONSTANT(TSR_COMBINE_REPLICA, 3);
CONSTANT(TSR_ROWS_RANGE, 0);
CONSTANT(TSR_ROWS_ROUTED, 1);
CONSTANT(TSR_POOLING_NONE, 0);
CONSTANT(TSR_POOLING_SUM, 1);
CONSTANT(TSR_POOLING_MEAN, 2);
CONSTANT(TSR_POOLING_MAX, 3);
CONSTANT(TSR_STATE_PER_ROW, 0);
CONSTANT(TSR_STATE_PER_ELEMENT, 1);
CONSTANT(TSR_STATE_PER_TABLE, 2);
CONSTANT(TSR_MODE_TRAIN, 0);
CONSTANT(TSR_MODE_INFER, 1);
CONSTANT(TSR_MUST_UNDERSTAND, 0xFFFF0000u);
CONSTANT(TSR_COLLECTIVE_LAUNCHES, 1);
CONSTANT(TSR_COLLECTIVE_WRAPS, 0x10000);
CONSTANT(TSR_CALL_LOSSY, 1);
CONSTANT(TSR_CALL_FORWARD, 2);
CONSTANT(TSR_CALL_BACKWARD, 4);
CONSTANT(TSR_REDUCE_SUM, 0);
CONSTANT(TSR_REDUCE_MAX, 1);
CONSTANT(TSR_REDUCE_MIN, 2);
CONSTANT(TSR_INIT_CONSTANT, 0);
CONSTANT(TSR_INIT_NORMAL, 1);
CONSTANT(TSR_INIT_UNIFORM, 2);
CONSTANT(TSR_VALUE_JAGGED, 0x10000);
CONSTANT(TSR_MODULE_TRAIN, 1);
CONSTANT(TSR_MODULE_SUMS_OVER_RANKS, 0x10000);
CONSTANT(TSR_COPY_TO_DEVICE, 0);
CONSTANT(TSR_COPY_TO_HOST, 1);
CONSTANT(TSR_COPY_ON_DEVICE, 2);
CONSTANT(TSR_UPDATE_SGD, 0);
CONSTANT(TSR_UPDATE_MOMENTUM, 1);
CONSTANT(TSR_UPDATE_ADAGRAD, 2);
CONSTANT(TSR_UPDATE_ROWWISE_ADAGRAD, 3);
CONSTANT(TSR_UPDATE_ADAM, 4);
CONSTANT(TSR_CLIP_NONE, 0);
CONSTANT(TSR_CLIP_BY_NORM, 1);
CONSTANT(TSR_CLIP_BY_VALUE, 2);
CONSTANT(TSR_CLIP_DOUBLES, 257);

typedef int tessera_layout_is_a_translation_unit;
