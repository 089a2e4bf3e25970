// The first report of `tessera verify` about each bad plugin; without a fault it reports nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "shell.h"

namespace {

using Finished = tessera::test::Ended;

Finished verify(const std::string& plugin, const std::string& fault, const std::string& options,
                const std::string& component = "") {
  return tessera::test::run_shell("BAD_PLUGINS_FAULT='" + fault + "' '" TESSERA_PROGRAM "' verify " + options +
                                  " '" BAD_PLUGINS_DIR "/" + plugin + ".so' " + component + " 2>&1");
}

// Joins the lines of each result, which are indented from the second on.
std::string unwrapped(std::string output) {
  for (size_t at = output.find("\n  "); at != std::string::npos; at = output.find("\n  ", at))
    output.replace(at, 3, " ");
  return output;
}

std::string first_defect(const std::string& output) {
  for (const std::string& line : tessera::test::lines_of(output)) {
    for (const char* outcome : {"FAILED ", "CRASHED ", "TIMED OUT "}) {
      if (line.starts_with(outcome)) return line;
    }
  }
  return "no defect was found:\n" + output;
}

// True if a line begins as expected. '#' matches any digit, because any of several ranks may be reported first.
bool begins_like(std::string_view line, std::string_view expected) {
  const auto alike = [](char a, char b) { return b == '#' ? a >= '0' && a <= '9' : a == b; };
  return line.size() >= expected.size() &&
         std::equal(expected.begin(), expected.end(), line.begin(), [&](char b, char a) { return alike(a, b); });
}

struct Animal {
  const char* plugin;
  const char* fault;
  const char* line;          // the first report of the check that it names, whole or its beginning
  const char* options = "";  // passed to verify, which runs up to level 4
};

// The check that the line names: the others are not run, because they would take minutes.
std::string only(const std::string& line) {
  const size_t begin = line.rfind(' ', line.find(',')) + 1;
  return "--only '^" + line.substr(begin, line.find(',') - begin) + "$' ";
}
// The component that the line names, of a plugin with several.
std::string component_of(const Animal& animal) {
  const std::string plugin = animal.plugin, line = animal.line;
  const size_t begin = line.find(", ") + 2;
  return plugin == "drafts" ? line.substr(begin, line.find(": ") - begin) : "";
}
void PrintTo(const Animal& animal, std::ostream* out) { *out << animal.plugin << " " << animal.fault; }

class BadPlugins : public testing::TestWithParam<Animal> {};

TEST_P(BadPlugins, IsFoundOut) {
  const Animal& animal = GetParam();
  const Finished done = verify(animal.plugin, animal.fault, only(animal.line) + animal.options, component_of(animal));
  EXPECT_EQ(done.status, 1) << done.output;
  const std::string line = first_defect(unwrapped(done.output));
  EXPECT_TRUE(begins_like(line, animal.line)) << line << "\nand not as expected:\n" << animal.line;
  EXPECT_THAT(line, testing::EndsWith("]")) << "it names no rule";
  for (const std::string& one : tessera::test::lines_of(done.output)) {
    const bool several_words = one.find(' ', one.find_first_not_of(' ')) != std::string::npos;
    EXPECT_FALSE(one.size() > 80 && several_words) << one;
  }
}
std::string name_of(const testing::TestParamInfo<Animal>& info) {
  return std::string(info.param.plugin) + "_" + info.param.fault;
}

class Healthy : public testing::TestWithParam<const char*> {};

TEST_P(Healthy, HasNoDefect) {
  const Finished done = verify(GetParam(), "", "--level 4");  // tests/verify has level 5
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_THAT(done.output, testing::Not(testing::HasSubstr("warning")));
  EXPECT_THAT(done.output, testing::HasSubstr("\nnot looked at (tessera."));
}
INSTANTIATE_TEST_SUITE_P(Kinds, Healthy,
                         testing::Values("sharders", "kernels", "row_makers", "optimizers", "modules", "collectives",
                                         "drafts"),
                         [](const auto& info) { return std::string(info.param); });

// A kernel without float32 rows is checked as closely as others.
TEST(BadRows, RowsOfSixteenBitsAreLookedAt) {
  const auto summary = [](const char* fault) {
    const Finished done = verify("kernels", fault, "--level 4");
    EXPECT_EQ(done.status, 0) << done.output;
    const size_t at = done.output.find(" passed");
    return done.output.substr(done.output.rfind('\n', at) + 1);
  };
  EXPECT_EQ(summary("keeps_bfloat16"), summary(""));
}

// Faults that the loader also finds (loader_test.cc).
constexpr Animal kLoader[] = {
    {"no_note", "", "FAILED static.note, no_note.so: has no .note.tessera note: it is a library, but not a Tessera"},
    {"abi_major", "", "FAILED static.note, abi_major.so: is built for plugin ABI 2.0, while this core has ABI 1.0"},
    {"epoch", "",
     "FAILED static.note, epoch.so: is built for release candidate 1 of plugin ABI 1, while this core has"},
    {"changes_process", "",
     "FAILED load.process, changes_process.so: when it was opened, it changed the floating-point mode, the locale, the "
     "working directory and the handler of signal 12"},
    {"min_host_minor", "", "FAILED static.note, min_host_minor.so: needs a core with ABI 1.99 or newer, while"},
    {"duplicate_ids", "", "FAILED static.note, duplicate_ids.so: lists tessera.sharder/1 \"bad\" twice"},
    {"exports_the_sdk", "", "FAILED static.symbols, exports_the_sdk.so: it exports "},
    {"no_entry", "", "FAILED static.symbols, no_entry.so: it has a Tessera note, but no symbol tessera_plugin_v1"},
    {"borrowed_entry", "", "FAILED static.symbols, borrowed_entry.so: it has a Tessera note, but no symbol"},
    {"throwing_constructor", "",
     "FAILED load.open, throwing_constructor.so: threw an exception when it was opened: from a static initialiser"},
    {"crashing_constructor", "", "FAILED load.open, crashing_constructor.so: crashed when it was opened (SIGSEGV)"},
    {"exiting_constructor", "", "FAILED load.open, exiting_constructor.so: ended the process with status 0 when it"},
    {"endless_constructor", "", "FAILED load.open, endless_constructor.so: was not opened after 15 s"},
    {"starting_a_thread", "",
     "FAILED load.process, starting_a_thread.so: when it was opened, it started 1 thread: threads"},
    {"throwing_entry", "", "FAILED load.open, throwing_entry.so: tessera_plugin_v1 threw an exception, which no"},
    {"refusing_entry", "", "FAILED load.open, refusing_entry.so: refuses this core: it needs a licence"},
    {"null_table", "", "FAILED load.open, null_table.so: refuses this core: it gives no reason"},
    {"zero_struct_size", "", "FAILED load.open, zero_struct_size.so: the plugin table has struct_size 0, too small"},
    {"table_min_host_minor", "", "FAILED load.open, table_min_host_minor.so: has a note that needs core minor 0, but"},
    {"null_component", "", "FAILED load.open, null_component.so: the plugin table has a NULL component"},
    {"null_id", "", "FAILED load.open, null_id.so: a component has NULL for \"id\", which must be there"},
    {"null_api", "", "FAILED load.open, null_api.so: a component has NULL for \"api\", which must be there"},
    {"null_slot", "", "FAILED load.open, null_slot.so: tessera.sharder/1 \"bad\" has NULL for \"propose\", which must"},
    {"null_create", "", "FAILED load.open, null_create.so: a component has NULL for \"create\", which must be there"},
    {"short_api", "", "FAILED load.open, short_api.so: tessera.sharder/1 \"bad\" has struct_size 8, too small for"},
    {"unknown_flags", "", "FAILED load.open, unknown_flags.so: tessera.sharder/1 \"bad\" has flags 0x40000000, which"},
    {"spaced_version", "", "FAILED load.open, spaced_version.so: tessera.sharder/1 \"bad\" has \"1.0 beta\" as kind"},
    {"table_epoch", "", "FAILED load.open, table_epoch.so: the plugin table is not of release candidate 3 of"},
    {"sdk_symbol", "",
     "FAILED static.symbols, sdk_symbol.so: it exports _ZN7tessera3sdk9forgottenEv of the SDK, which"},
    {"one_route", "", "FAILED load.open, one_route.so: tessera.sharder/1 \"bad\" has only one of \"route\" and"},
    {"note_version", "", "FAILED load.open, note_version.so: has \"tessera.sharder/1 bad 2.0\" in its note, but"},
    {"note_count", "", "FAILED load.open, note_count.so: has 2 components in its note, but 1 in its table"},
    {"missing_symbol", "", "FAILED load.open, missing_symbol.so: cannot be opened: "},
    {"failing_probe", "", "FAILED load.probe, bad: probe returned TSR_UNAVAILABLE, but filled in TSR_OK: this machine"},
    {"throwing_probe", "", "FAILED load.probe, bad: an exception came out of probe"},
    {"endless_probe", "", "FAILED load.probe, bad: probe gave a message without its NUL"},
    {"throwing_create", "", "FAILED contract.create, bad: an exception came out of create with {}: from create"},
    {"endless_create", "", "FAILED contract.create, bad: create with {} gave a message without its NUL"},
    {"none", "",
     "FAILED contract.options, bad: create with the options {\"tessera_verify_knows_no_such_option\": 1} succeeded, "
     "but must be refused"},
};
INSTANTIATE_TEST_SUITE_P(Loader, BadPlugins, testing::ValuesIn(kLoader), name_of);

// Faults of the whole process, or of every kind of component.
constexpr Animal kContract[] = {
#if defined(__x86_64__)
    {"sharders", "flushes_denormals",
     "FAILED load.process, sharders.so: when it was opened, it changed the floating-point mode [abi/base.h, The "
     "process"},
#endif
    {"sharders", "installs_a_handler",
     "FAILED load.process, sharders.so: when it was opened, it changed the handler of signal 15 [abi/base.h, The "
     "process"},
    {"sharders", "changes_the_directory",
     "FAILED contract.process, bad.sharder: in create, it changed the working directory [abi/base.h, The process is "
     "the"},
    {"sharders", "changes_the_locale",
     "FAILED contract.process, bad.sharder: in create, it changed the locale [abi/base.h, The process is the host's]"},
    {"sharders", "leaves_a_thread",
     "FAILED contract.process, bad.sharder: destroy left 1 thread running [abi/plugin.h, tsr_component::destroy]"},
    {"sharders", "ignores_options",
     "FAILED contract.options, bad.sharder: create with the options {\"tessera_verify_knows_no_such_option\": 1} "
     "succeeded, but must be refused"},
    {"sharders", "returns_another_code",
     "FAILED contract.options, bad.sharder: create with the options {\"tessera_verify_knows_no_such_option\": 1} "
     "returned TSR_NOT_FOUND, but filled in TSR_INVALID_ARGUMENT: unknown option"},
    {"sharders", "fills_errors_whole",
     "FAILED contract.errors, bad.sharder: it wrote message byte 16 of a tsr_error that has room for 16"},
    {"sharders", "keeps_memory",
     "FAILED contract.create, bad.sharder: after destroy it still holds 600 bytes that the host lent"},
    {"sharders", "writes_behind_memory", "FAILED contract.create, bad.sharder: it wrote past 100 bytes of the host"},
    {"sharders", "ignores_missing_memory",
     "CRASHED contract.memory, bad.sharder: it crashed in create with memory for 0 blocks ("},
};
INSTANTIATE_TEST_SUITE_P(Contract, BadPlugins, testing::ValuesIn(kContract), name_of);

constexpr Animal kSharders[] = {
    {"sharders", "crashes_in_propose",
     "CRASHED sharder.arguments, bad.sharder: it crashed in propose, table of 16 rows x "},
    {"sharders", "loops_in_propose", "TIMED OUT sharder.arguments, bad.sharder: propose, table of 16 rows x ",
     "--timeout 1"},
    {"sharders", "says_nothing",
     "FAILED sharder.arguments, bad.sharder: propose for a table of 16 rows x 12 columns on 4 ranks, 1 a host failed "
     "with TSR_INTERNAL and an empty message [abi/base.h, tsr_error]"},
    {"sharders", "ignores_flags",
     "FAILED sharder.flags, bad.sharder: propose with an unknown flag in tsr_table that must be understood succeeded, "
     "but must be refused [abi/base.h, flags]"},
    {"sharders", "compares_sizes", "FAILED sharder.arguments, bad.sharder: propose for a table of "},
    {"sharders", "leaves_a_hole",
     "FAILED sharder.tiling, bad.sharder: table of 16 rows x 12 columns on 4 ranks, 1 a host, max_shards 4: the "
     "rectangles leave 12 of the table's 16 x 12 cells uncovered [abi/sharder.h, tsr_layout]"},
    {"sharders", "overlaps",
     "FAILED sharder.tiling, bad.sharder: table of 16 rows x 12 columns on 4 ranks, 1 a host, max_shards 4: rows [0, "
     "5) x columns [0, 12) and rows [4, 8) x columns [0, 12) overlap"},
    {"sharders", "too_many_rectangles",
     "FAILED sharder.tiling, bad.sharder: table of 16 rows x 12 columns on 4 ranks, 1 a host, max_shards 4: "
     "TSR_PLACE_EVERY_RANK with 5 rectangles for 4 ranks"},
    {"sharders", "ignores_max_shards",
     "FAILED sharder.limits, bad.sharder: table of 20 rows x 128 columns on 16 ranks, 2 a host, max_shards 5: a "
     "layout has 16 shards, but max_shards must be kept"},
    {"sharders", "differs_by_process", "FAILED sharder.determinism, bad.sharder: table of "},
    {"sharders", "leaves_outputs",
     "FAILED sharder.routes, bad.sharder: table of 1110 rows x 64 columns on 1 ranks, "
     "min_partition 60, max_shards 1: route leaves the output of id 3 unwritten"},
    {"sharders", "many_on_one_row",
     "FAILED sharder.routes, bad.sharder: table of 1110 rows x 64 columns on 1 ranks, "
     "min_partition 60, max_shards 1: route takes ids "},
    {"sharders", "wrong_inverse",
     "FAILED sharder.routes, bad.sharder: table of 1110 rows x 64 columns on 1 ranks, "
     "min_partition 60, max_shards 1: unroute takes row 1 of row set 0 to id 0, but route takes "
     "id 1 there [abi/sharder.h, tsr_sharder::route]"},
    {"sharders", "keeps_no_ids",
     "FAILED sharder.routes, bad.sharder: table of 2749 rows x 16 columns on 5 ranks, 1 a host: route gives an id "
     "another row, but says that rows keep their ids [abi/sharder.h, tsr_sharder::route]"},
    {"sharders", "remembers_propose", "FAILED sharder.routes, bad.sharder: table of "},
    {"sharders", "knows_the_batch",
     "FAILED sharder.routes, bad.sharder: table of 1110 rows x 64 columns on 1 ranks, "
     "min_partition 60, max_shards 1: route takes id "},
    {"sharders", "is_wrong_once_in_ten_thousand",
     "FAILED sharder.large, bad.sharder: table of 1000003 rows x 16 columns on 3 ranks: unroute takes row 9259 of row "
     "set 0 to id 27776, but route takes id 27777 there"},
    {"sharders", "keeps_sixteen_bits",
     "FAILED sharder.large, bad.sharder: table of 1000003 rows x 16 columns on 3 ranks: route takes ids "},
    {"sharders", "keeps_32_bits", "FAILED sharder.large, bad.sharder: table of 4294979641 rows x "},
    {"sharders", "leaves_a_thread_in_propose",
     "FAILED sharder.arguments, bad.sharder: 1 thread that it started runs on after all objects were used and "
     "destroyed [abi/plugin.h, tsr_component::destroy]"},
};
INSTANTIATE_TEST_SUITE_P(Sharders, BadPlugins, testing::ValuesIn(kSharders), name_of);

constexpr Animal kKernels[] = {
    {"kernels", "supports_anything",
     "FAILED kernel.supports, bad.kernel: supports for a compute kernel that does not exist succeeded, but must be "
     "refused"},
    {"kernels", "compares_strides",
     "FAILED kernel.longer_structs, bad.kernel: open (fused, rows of float32, outputs of float32), which supports() "
     "accepted, failed with TSR_INVALID_ARGUMENT: built for tables of another size"},
    {"kernels", "keeps_memory", "FAILED kernel.close, bad.kernel: after close it holds 192 bytes that the host lent"},
    {"kernels", "skips_empty_bags",
     "FAILED kernel.forward, bad.kernel: forward (fused, rows of float32, outputs of float32, pooling SUM) gave 77 "
     "for "},
    {"kernels", "sums_for_mean",
     "FAILED kernel.forward, bad.kernel: forward (fused, rows of float32, outputs of float32, pooling MEAN) gave "},
    {"kernels", "ignores_weights",
     "FAILED kernel.forward, bad.kernel: forward (fused, rows of float32, outputs of float32, pooling SUM, weighted) "
     "gave "},
    {"kernels", "forgets_a_duplicate", "FAILED kernel.update, bad.kernel: column 0 of row 0 of a table of 7 rows is "},
    {"kernels", "never_updates_bfloat16", "FAILED kernel.update, bad.kernel: column "},
    {"kernels", "updates_by_feature", "FAILED kernel.update, bad.kernel: column "},
    {"kernels", "ignores_max_gradient", "FAILED kernel.update, bad.kernel: column "},
    {"kernels", "forgets_gradients_of_weights",
     "FAILED kernel.update, bad.kernel: the gradient of the weight at position 0 is 0, but plain loops give "},
    {"kernels", "hands_out_unsorted_rows",
     "FAILED kernel.gradients, bad.kernel: backward_rows gave row 1 of table 0 as number 0, but ascending and "
     "unique rows have 0 [abi/kernel.h, tsr_row_gradient]"},
    {"kernels", "has_one_context",
     "FAILED kernel.contexts, bad.kernel: backward failed with TSR_FAILED_PRECONDITION: "},
    {"kernels", "keeps_the_last_row", "FAILED kernel.update, bad.kernel: export_rows gave 6 of 7 rows"},
    {"kernels", "ignores_flags",
     "FAILED kernel.flags, bad.kernel: forward with an unknown flag that must be understood succeeded, but must be "
     "refused [abi/base.h, "},
    {"kernels", "exports_a_snapshot",
     "FAILED kernel.cursors, bad.kernel: column 0 of row 0 of a table of 200 rows is "},
    {"row_makers", "inserts_when_reading",
     "FAILED kernel.read_only, bad.on_demand: a lookup with TSR_LOOKUP_READ_ONLY took the rows in use from 0 to "},
    {"row_makers", "forgets_start_values",
     "FAILED kernel.start_values, bad.on_demand: the first lookup of rows that did not exist gave 0, but their "},
    {"row_makers", "counts_again_in_each_part",
     "FAILED kernel.estimate, bad.products: estimate of a table of 1048576 rows is 4195328 bytes, and 41953280 in "
     "total for 10 parts of it [abi/draft/cost.h, tsr_kernel_cost::estimate]"},
    {"row_makers", "keeps_replaced_rows",
     "FAILED kernel.rows, bad.on_demand: import_rows of one row with TSR_IMPORT_REPLACE leaves 5 rows"},
    {"kernels", "has_one_scratch",
     "FAILED kernel.threads, bad.kernel: during lookups by other threads, forward gave other results than by itself"},
    {"kernels", "loses_updates_of_prefetched_rows", "FAILED kernel.prefetch, bad.kernel: "},
    {"kernels", "forgets_extra", "FAILED kernel.extra, bad.kernel: byte "},
    {"kernels", "imports_in_order", "FAILED kernel.rows, bad.kernel: column 0 of row 0 is "},
    {"kernels", "reads_rows_in_order", "FAILED kernel.read_rows, bad.kernel: read_rows gives other weights for row "},
    {"kernels", "ignores_flags_of_updates",
     "FAILED kernel.flags, bad.kernel: backward with an unknown flag in tsr_update that must be understood "
     "succeeded, but must be refused [abi/base.h, "},
    {"kernels", "uses_the_rate_before", "FAILED kernel.update, bad.kernel: column "},
    {"kernels", "is_one_percent_off", "FAILED kernel.update, bad.kernel: column "},
    {"kernels", "stops_at_column_256", "FAILED kernel.large, bad.kernel: column 256 of row "},
    {"kernels", "keeps_sixteen_bits", "FAILED kernel.large, bad.kernel: forward ("},
    {"kernels", "forgets_ids_beyond_20", "FAILED kernel.large, bad.kernel: forward ("},
    {"kernels", "starts_states_at_0", "FAILED kernel.rows, bad.kernel: state 0 of row 1 is 0, not 0.25, after open ["},
    {"kernels", "imports_one_state",
     "FAILED kernel.rows, bad.kernel: state 1 of row 0 is 0.25, not 1.5, after import_rows ["},
    {"kernels", "applies_255_rows", "FAILED kernel.apply, bad.kernel: column "},
    {"kernels", "has_one_gradient", "FAILED kernel.row_views, bad.kernel: backward_rows gave "},
    {"kernels", "stops_after_500_updates", "FAILED kernel.many_calls, bad.kernel: column "},
    {"kernels", "keeps_each_batch", "FAILED kernel.many_calls, bad.kernel: 100 steps alike took "},
    {"kernels", "knows_its_rank",
     "FAILED kernel.ranks, bad.kernel: the same steps give other rows in a process with RANK=1 than with RANK=0 ["},
};
INSTANTIATE_TEST_SUITE_P(Kernels, BadPlugins, testing::ValuesIn(kKernels), name_of);

constexpr Animal kOptimizers[] = {
    {"optimizers", "forgets_the_learning_rate",
     "FAILED optimizer.learning_rate, bad.momentum: created with learning_rate 0.125, it says that its learning rate "
     "is 0.01"},
    {"optimizers", "changes_its_states",
     "FAILED optimizer.states, bad.momentum: its states differ from call to call: what a kernel keeps would not fit "
     "[abi/optimizer.h, tsr_optimizer::state]"},
    {"optimizers", "writes_too_far", "FAILED optimizer.widths, bad.momentum: update_row writes past a row of 1 floats"},
    {"optimizers", "divides_by_zero",
     "FAILED optimizer.zeros, bad.momentum: a row of zeros with a gradient of zeros becomes "},
    {"optimizers", "skips_the_last_row",
     "FAILED optimizer.rows, bad.momentum: row 4 of 5 rows of 1 floats differs after update_rows from what update_row "
     "makes of it [abi/optimizer.h, tsr_optimizer::update_rows]"},
    {"optimizers", "shares_state",
     "FAILED optimizer.rows, bad.momentum: row 0 of 1 rows of 1 floats differs after update_rows from what update_row "
     "makes of it"},
    {"optimizers", "ignores_the_schedule", "FAILED optimizer.formula, exact_sgd: element 0 of a row of 1 is "},
    {"optimizers", "uses_the_rate_before",
     "FAILED optimizer.history, bad.momentum: update_row for step 1 with learning rate 0.0625 gives other rows after "
     "updates of other steps and rates than as the first call of an object"},
    {"optimizers", "counts_its_own_steps", "FAILED optimizer.history, bad.momentum: update_row for step 1 with "},
    {"optimizers", "leaves_a_thread_in_use", "FAILED optimizer.widths, bad.momentum: 1 thread that it started runs "},
    {"optimizers", "knows_its_rank",
     "FAILED optimizer.ranks, bad.momentum: the same updates give other rows in a process with RANK=1 than with"},
    {"optimizers", "stops_at_column_256", "FAILED optimizer.formula, exact_sgd: element 256 of a row of 257 is "},
};
INSTANTIATE_TEST_SUITE_P(Optimizers, BadPlugins, testing::ValuesIn(kOptimizers), name_of);

constexpr Animal kCollectives[] = {
    {"collectives", "loses_the_last_element",
     "FAILED collective.operations, bad.through: all_to_all_v of float32 on 2 ranks: rank "},
    {"collectives", "reorders",
     "FAILED collective.operations, bad.through: all_to_all_v of float32 on 2 ranks: rank 1 got "},
    {"collectives", "loses_precision",
     "FAILED collective.operations, bad.through: all_to_all_v of float32 on 2 ranks: rank "},
    {"collectives", "has_one_root",
     "FAILED collective.operations, bad.through: broadcast of float32 on 2 ranks: rank 0 got "},
    {"collectives", "only_sums", "FAILED collective.operations, bad.through: all_reduce of float32 on 2 ranks: rank "},
    {"collectives", "splits_into_one", "FAILED collective.split, bad.through: rank "},
    {"collectives", "ignores_the_key",
     "FAILED collective.split, bad.through: with the keys 0, -1, -1 and -3, rank "},  // 0 or 3, whichever comes first
    {"collectives", "describes_nothing",
     "FAILED collective.describe, bad.through: describe does not say that reductions take float32"},
    {"collectives", "counts_backwards",
     "FAILED collective.describe, bad.through: wire_bytes says 999984 for 16 float32 in rows of 0, but 1000000 for "
     "fewer"},
    {"collectives", "says_it_adds_bytes",
     "FAILED collective.reducible, bad.through: describe says that reductions take DLPack type 1 with 8 bits, but "
     "all_reduce says: "},
    {"collectives", "says_it_knows_devices", "FAILED collective.operations, bad.through: rank "},
    {"collectives", "forgets_its_failure", "FAILED collective.poison, bad.through: after an operation failed with "},
    {"collectives", "swallows_errors",
     "FAILED collective.killed, bad.through: rank # finished an operation although rank 1 was killed"},
    {"collectives", "blames_nobody",
     "FAILED collective.killed, bad.through: when rank 1 was killed, rank # gets an error with rank -1, though it "
     "says: "},
    {"collectives", "ignores_deadlines",
     "FAILED collective.stopped, bad.through: rank # was not told within 10 s that rank 1 was stopped"},
    {"collectives", "ignores_abort",
     "FAILED collective.abort, bad.through: rank # finished an operation that was aborted"},
    {"collectives", "swaps_equal_messages",
     "FAILED collective.equal_counts, bad.through: all_to_all_v number 0 of a series, of 16 and more elements, on 2 "
     "ranks: rank "},
    {"collectives", "duplicates_a_message", "FAILED collective.equal_counts, bad.through: all_to_all_v number 0 of a "},
    {"collectives", "swaps_once_in_a_thousand", "FAILED collective.equal_counts, bad.through: all_to_all_v ",
     "--level 5"},
    {"collectives", "sends_twice",
     "FAILED collective.counted, bad.through: all_to_all_v of 20000 float32 for each of 2 other ranks gave the inner "
     "transport 320000 bytes to send, while wire_bytes says 160000"},
    {"collectives", "changes_what_it_sends", "FAILED collective.equal_counts, bad.through: all_to_all_v number "},
    {"collectives", "rounds_gradients", "FAILED collective.equal_counts, bad.through: all_to_all_v number "},
    {"collectives", "rounds_doubles",
     "FAILED collective.operations, bad.through: all_reduce of float64 on 2 ranks: rank "},
    {"collectives", "waits_out_of_order",
     "FAILED collective.counted, bad.through: works of the inner transport are waited for in another order than"},
    {"collectives", "forgets_the_deadline",
     "FAILED collective.counted, bad.through: all_to_all_v with a deadline of 7.5 s gives the inner transport 0 s ["},
    {"collectives", "forgets_the_label",
     "FAILED collective.counted, bad.through: all_to_all_v with a label hands no label to the inner transport ["},
    {"collectives", "skips_barriers",
     "FAILED collective.barrier, bad.through: a barrier ended on rank # before rank # had come"},
    {"collectives", "ignores_flags",
     "FAILED collective.flags, bad.through: barrier with an unknown flag that must be understood succeeded, but "
     "must be refused"},
    {"collectives", "leaves_a_thread_in_use",
     "FAILED collective.alone, bad.through: 1 thread that it started runs on after"},
};
INSTANTIATE_TEST_SUITE_P(Collectives, BadPlugins, testing::ValuesIn(kCollectives), name_of);

constexpr Animal kModules[] = {
    {"modules", "names_twice", "FAILED module.parameters, bad.linear: two parameters are called weight"},
    {"modules", "has_nine_dimensions",
     "FAILED module.parameters, bad.linear: parameter weight has 9 dimensions, but 1 to 4 are allowed"},
    {"modules", "writes_behind_its_output", "FAILED module.inference, bad.linear: forward wrote past "},
    {"modules", "takes_anything",
     "FAILED module.outputs, bad.linear: output for no inputs succeeded, but must be refused"},
    {"modules", "infers_otherwise",
     "FAILED module.inference, bad.linear: without a context, into memory that held 5, forward gives "},
    {"modules", "adds_to_the_output",
     "FAILED module.inference, bad.linear: without a context, into memory that held 5, forward gives "},
    {"modules", "forgets_the_bias",
     "FAILED module.gradients, bad.linear: the gradient of element 0 of parameter 1 is 0, "},
    {"modules", "forgets_a_sample",
     "FAILED module.gradients, bad.linear: the gradient of element 30 of input 0 is 0, "},
    {"modules", "adds_input_gradients",
     "FAILED module.accumulation, bad.linear: the gradient of element 0 of input 0, which held 1000 before, is 1000"},
    {"modules", "overwrites_gradients",
     "FAILED module.accumulation, bad.linear: the gradient of element 0 of parameter 0, half of what two backwards "
     "added up, is "},
    {"modules", "writes_unwanted_gradients", "CRASHED module.accumulation, bad.linear: it crashed in backward ("},
    {"modules", "is_one_percent_off", "FAILED module.gradients, bad.linear: the gradient of "},
    {"modules", "is_off_beyond_500_samples", "FAILED module.large, bad.linear: the gradient of input 0"},
    {"modules", "remembers_the_last_input", "FAILED module.contexts, bad.linear: the gradient of element "},
    {"modules", "keeps_each_batch", "FAILED module.many_calls, bad.linear: 50 forwards and backwards alike took "},
    {"modules", "knows_its_rank",
     "FAILED module.ranks, bad.linear: the same call gives other values in a process with RANK=1 than with RANK=0 ["},
    {"modules", "evaluates_100_otherwise",
     "FAILED module.large, bad.linear: an evaluation of many samples gives other outputs than a forward that trains"},
    {"modules", "leaves_gradients_unwritten", "FAILED module.accumulation, bad.newest: the gradient of element "},
    {"modules", "leaves_a_thread_in_forward", "FAILED module.inference, bad.linear: 1 thread that it started runs on"},
};
INSTANTIATE_TEST_SUITE_P(Modules, BadPlugins, testing::ValuesIn(kModules), name_of);

constexpr Animal kDrafts[] = {
    {"drafts", "opens_anything", "FAILED reader.errors, bad.lines: open of a file that does not exist succeeded, but",
     "--input /etc/passwd"},
    {"drafts", "selects_anything",
     "FAILED reader.errors, bad.lines: select of a column that does not exist succeeded, but must be refused"},
    {"drafts", "turns_a_second_pass",
     "FAILED reader.passes, bad.lines: row 0 of block 0 is another one in column 0 in a second pass than in the first "
     "pass"},
    {"drafts", "differs_by_rank",
     "FAILED reader.ranks, bad.lines: it gives other rows in a process with RANK=1 than with RANK=0"},
    {"drafts", "stops_at_row_65536",
     "FAILED reader.rows, bad.pairs: it gives 65536 rows of a file of 70001 rows [abi/draft/reader.h, "},
    {"drafts", "needs_a_last_line_end",
     "FAILED reader.rows, bad.pairs: it gives 70000 rows of a file of 70001 rows whose last line does not end ["},
    {"drafts", "cuts_floats", "FAILED reader.columns, bad.pairs: row 0 of column price is 0 as a number ("},
    {"drafts", "cuts_integers", "FAILED reader.columns, bad.pairs: row 0 of column user is "},
    {"drafts", "overwrites_sums", "FAILED metric.sums, bad.brier: sum 0 is "},
    {"drafts", "skips_the_last_sample", "FAILED metric.sums, bad.brier: sum 0 is "},
    {"drafts", "is_always_nan", "FAILED metric.sums, bad.brier: the value is nan for 40 samples"},
    {"drafts", "is_nan_on_rank_1", "FAILED metric.ranks, bad.brier: the value of the same samples is 0."},
    {"drafts", "leaves_a_thread_in_add", "FAILED metric.info, bad.brier: 3 threads that it started run on after"},
    {"drafts", "shares_its_port",
     "FAILED endpoint.in_use, bad.deaf: start at an address that is in use succeeded, but must be refused"},
    {"drafts", "gives_no_address", "FAILED endpoint.turns, bad.deaf: start gives \"\" and not an address"},
    {"drafts", "keeps_listening", "FAILED endpoint.turns, bad.deaf: start failed with TSR_UNAVAILABLE: port "},
    {"drafts", "finds_items_beyond_the_last", "FAILED index.rows, bad.first_items: search gives row "},
    {"drafts", "finds_an_item_twice", "FAILED index.rows, bad.first_items: search gives row 0 twice"},
    {"drafts", "finds_items_after_a_gap", "FAILED index.rows, bad.first_items: search gives row "},
    {"drafts", "finds_others_each_time",
     "FAILED index.rows, bad.first_items: a second search gives other rows than the first"},
    {"drafts", "counts_nothing", "FAILED device.info, bad.device: the probe succeeded, but count gives 0 devices"},
    {"drafts", "aligns_nothing", "FAILED device.copies, bad.device: memory from alloc is not aligned to 256 bytes"},
    {"drafts", "copies_up_to_a_megabyte", "FAILED device.copies, bad.device: of 5000011 bytes that went to the device"},
    {"drafts", "never_reaches_an_event", "FAILED device.events, bad.device: event_query gives 0 for an event"},
    {"drafts", "fills_words", "FAILED device.copies, bad.device: "},
    {"drafts", "forgets_what_it_freed", "FAILED device.stats, bad.device: after free, stats says 1000000 held bytes"},
};
INSTANTIATE_TEST_SUITE_P(Drafts, BadPlugins, testing::ValuesIn(kDrafts), name_of);

}  // namespace
