// Tests the SDK: options, errors, tensors, and classes through the C tables that are made from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "many_kinds.h"
#include "tessera/sdk/inner_kernel.h"
#include "tessera/sdk/random.h"
#include "tessera/sdk/sized.h"

namespace tessera::sdk {
namespace {

using testing::ElementsAre;

std::string message_of(const std::function<void()>& call, tsr_code code = TSR_INVALID_ARGUMENT) {
  try {
    call();
  } catch (const Failure& f) {
    EXPECT_EQ(f.code(), code);
    return f.what();
  }
  return "no failure";
}

// The first numbers of seed 1234567 in reference implementations of SplitMix64.
TEST(Random, GivesThePublishedNumbers) {
  Random random(1234567);
  for (const uint64_t want :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(random.bits(), want);
}

TEST(Options, ReadsEveryType) {
  Options o(R"( { "lr" : 1e-3, "n":-4, "on": true, "off":false, "name":"a\"\\\u00e9\ud83d\ude00", "sizes":[64, 16.5],
                  "none": [] } )");
  EXPECT_EQ(o.number("lr", 0), 1e-3);
  EXPECT_EQ(o.integer("n", 0), -4);
  EXPECT_TRUE(o.flag("on", false));
  EXPECT_FALSE(o.flag("off", true));
  EXPECT_EQ(o.string("name", ""), "a\"\\\u00e9\U0001F600");
  EXPECT_THAT(o.numbers("sizes", {}), ElementsAre(64, 16.5));
  EXPECT_THAT(o.integers("none", {1}), ElementsAre());
  EXPECT_EQ(o.number("absent", 7), 7);
  EXPECT_FALSE(o.has("other"));
  EXPECT_NO_THROW(o.finish());
}

TEST(Options, RefusesUnknownKeysNamingTheNearest) {
  Options o(R"({"learing_rate": 1})");
  o.number("eps", 0);
  o.number("learning_rate", 0);
  EXPECT_EQ(message_of([&] { o.finish(); }),
            "unknown option \"learing_rate\": the nearest known one is \"learning_rate\"");
  Options shortened(R"({"lr": 1})");
  shortened.number("eps", 0);
  shortened.number("learning_rate", 0);
  EXPECT_EQ(message_of([&] { shortened.finish(); }),
            "unknown option \"lr\": the nearest known one is \"learning_rate\"");
  Options longer(R"({"cash": 1})");
  longer.string("io", "");
  longer.number("cache_mib", 0);
  EXPECT_EQ(message_of([&] { longer.finish(); }), "unknown option \"cash\": the nearest known one is \"cache_mib\"");
  Options another(R"({"x": 1})");  // it has none of their letters
  another.string("io", "");
  another.number("cache_mib", 0);
  EXPECT_EQ(message_of([&] { another.finish(); }), "unknown option \"x\": there are \"io\", \"cache_mib\"");
  Options none(R"({"x": 1})");
  EXPECT_EQ(message_of([&] { none.finish(); }), "unknown option \"x\": there are none");
  Options own(R"({"x": {"deep": 1}})");
  EXPECT_EQ(own.text(), R"({"x": {"deep": 1}})");
  EXPECT_NO_THROW(own.finish());
}

TEST(Options, WordsAreOneOfSome) {
  Options o(R"({"kind": "log", "draw": "some"})");
  EXPECT_EQ(o.word("kind", {"sqrt", "log", "calendar"}), 1u);
  EXPECT_EQ(o.word("per", {"batch", "sample"}), 0u);
  EXPECT_EQ(message_of([&] {
              (void)o.word("draw", {"all", "uniform", "popularity"});
            }),
            "option \"draw\" is \"some\", but must be all, uniform or popularity");
}

TEST(Options, RefusesWrongTypes) {
  Options o(R"({"a": "1", "b": 1.5, "c": [1.5], "d": 1})");
  EXPECT_EQ(message_of([&] { o.number("a", 0); }), "option \"a\" must be a number");
  EXPECT_EQ(message_of([&] { o.integer("b", 0); }), "option \"b\" must be a whole number, not 1.5");
  EXPECT_EQ(message_of([&] { o.integers("c", {}); }), "option \"c\" must be a whole number, not 1.5");
  EXPECT_EQ(message_of([&] { o.flag("d", false); }), "option \"d\" must be true or false");
}

TEST(Options, RefusesWhatIsNoFlatJsonObject) {
  for (const char* bad : {"",
                          "[]",
                          "{",
                          "{}x",
                          "{\"a\"}",
                          "{\"a\":}",
                          "{\"a\":1,}",
                          "{a:1}",
                          "{\"a\":.5}",
                          "{\"a\":+1}",
                          "{\"a\":nan}",
                          "{\"a\":inf}",
                          "{\"a\":1e999}",
                          "{\"a\":tru}",
                          "{\"a\":[1,]}",
                          "{\"a\":[\"x\"]}",
                          "{\"a\":{}}",
                          "{\"a\":null}",
                          "{\"a\":\"x}",
                          "{\"a\":\"\\q\"}",
                          "{\"a\":\"\\u12g4\"}",
                          "{\"a\":\"\\ud800\"}",
                          "{\"a\":\"\n\"}",
                          "{\"a\":1,\"a\":2}",
                          "{\"a\":1 \"b\":2}",
                          "{\"a\":\"\\",
                          "{\"a\":\"\\u"}) {
    Options o(bad);
    EXPECT_NE(message_of([&] { o.finish(); }), "no failure") << bad;
  }
}

TEST(Errors, ExceptionsBecomeCodes) {
  tsr_error err = TSR_ERROR_INIT;
  EXPECT_EQ(guard(&err, [] {}), TSR_OK);
  EXPECT_EQ(guard(&err, [] { return TSR_OUT_OF_RANGE; }), TSR_OUT_OF_RANGE);
  EXPECT_EQ(guard(&err, [] { fail(TSR_NOT_FOUND, "table ", 3); }), TSR_NOT_FOUND);
  EXPECT_STREQ(err.message, "table 3");
  EXPECT_EQ(err.code, TSR_NOT_FOUND);
  EXPECT_EQ(guard(&err, [] { throw std::bad_alloc(); }), TSR_RESOURCE_EXHAUSTED);
  EXPECT_EQ(guard(&err, [] { throw std::runtime_error("odd"); }), TSR_INTERNAL);
  EXPECT_STREQ(err.message, "odd");
  EXPECT_EQ(guard(&err, [] { throw 1; }), TSR_INTERNAL);
  EXPECT_EQ(guard(nullptr, [] { throw 1; }), TSR_INTERNAL);
  EXPECT_EQ(guard(&err, [] { fail(TSR_OK, "a failure without a code"); }), TSR_INTERNAL);
}

// The other side may omit the NUL; bytes after the array are not read.
TEST(Errors, TextsWithoutAnEndAreCutWhereTheArrayEnds) {
  struct {
    Call call;
    char behind[8] = "behind";
  } here;
  std::memset(here.call.err()->message, 'x', sizeof(tsr_error::message));
  EXPECT_EQ(message_of([&] { here.call.check(TSR_INTERNAL); }, TSR_INTERNAL), std::string(500, 'x'));
}

struct NoInstance : many_kinds::Ones {
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config&) const override { return nullptr; }
};
struct NoGroup : Collective {
  std::unique_ptr<Group> connect(const tsr_rendezvous&) override { return nullptr; }
};
struct NoWork : many_kinds::LoopGroup {
  std::unique_ptr<Group> split(int32_t, int32_t, const CollectiveCall&) override { return nullptr; }
  Work* barrier(const CollectiveCall&) override { return nullptr; }
};
struct ConnectsToNoWork : Collective {
  std::unique_ptr<Group> connect(const tsr_rendezvous&) override { return std::make_unique<NoWork>(); }
};

TEST(Errors, NullWhereAnObjectBelongsIsAFailure) {
  tsr_error err = TSR_ERROR_INIT;
  NoInstance kernel;
  const tsr_kernel_config config{};
  void* instance = nullptr;
  EXPECT_EQ(Kernel::table<NoInstance>.open(&kernel, &config, &instance, &err), TSR_INTERNAL);
  EXPECT_STREQ(err.message, "open() returned no instance: return one, or throw Failure");
  NoGroup alone;
  tsr_group* group = nullptr;
  const tsr_rendezvous where{};
  EXPECT_EQ(Collective::table<NoGroup>.connect(&alone, &where, &group, &err), TSR_INTERNAL);
  EXPECT_STREQ(err.message, "connect() returned a null pointer: return an object, or throw Failure");
  ConnectsToNoWork collective;
  const tsr_collective& api = Collective::table<ConnectsToNoWork>;
  ASSERT_EQ(api.connect(&collective, &where, &group, &err), TSR_OK);
  const tsr_collective_call call{};
  tsr_group* child = nullptr;
  EXPECT_EQ(api.split(group, -1, 0, &call, &child, &err), TSR_OK);
  EXPECT_EQ(api.split(group, 0, 0, &call, &child, &err), TSR_INTERNAL);
  tsr_work* work = nullptr;
  EXPECT_EQ(api.barrier(group, &call, &work, &err), TSR_INTERNAL);
  api.close(group);
}

TEST(Errors, LongTextsAreCutAtWholeCharacters) {
  tsr_error err = TSR_ERROR_INIT;
  set_error(&err, TSR_INTERNAL, std::string(498, 'x') + "\u00e9\u00e9");
  EXPECT_EQ(std::string(err.message), std::string(498, 'x'));
  set_error(&err, TSR_INTERNAL, std::string(497, 'x') + "\u00e9\u00e9");
  EXPECT_EQ(std::string(err.message), std::string(497, 'x') + "\u00e9");
  tsr_error small{16, TSR_OK, -1, {0}};  // an older, shorter struct: four bytes of text
  small.message[4] = 'k';
  set_error(&small, TSR_INTERNAL, "abcdef");
  EXPECT_STREQ(small.message, "abc");
  EXPECT_EQ(small.message[4], 'k');
}

DLTensor tensor_of(float* data, int64_t* shape, uint64_t byte_offset = 0) {
  return {data, {kDLCPU, 0}, 1, dtype_of<float>(), shape, nullptr, byte_offset};
}

TEST(Errors, CodeInCHasTheSameRules) {
  tsr_error error = TSR_ERROR_INIT;
  EXPECT_EQ(tsr_refuse(&error, TSR_NOT_FOUND, "there is no table 7"), TSR_NOT_FOUND);
  EXPECT_EQ(error.code, TSR_NOT_FOUND);
  EXPECT_STREQ(error.message, "there is no table 7");
  EXPECT_EQ(error.rank, -1);
  const std::string much(sizeof(error.message) - 2, 'm');
  (void)tsr_refuse(&error, TSR_INTERNAL, (much + "\u00e9\u00e9").c_str());  // two bytes each: neither fits whole
  EXPECT_EQ(error.message, much);

  tsr_error small = TSR_ERROR_INIT;
  small.struct_size = offsetof(tsr_error, message) + 4;
  small.message[4] = 'k';
  (void)tsr_refuse(&small, TSR_INTERNAL, "abcdef");
  EXPECT_STREQ(small.message, "abc");
  EXPECT_EQ(small.message[4], 'k');
  small.struct_size = offsetof(tsr_error, code);
  small.code = TSR_OK;
  EXPECT_EQ(tsr_refuse(&small, TSR_INTERNAL, "x"), TSR_INTERNAL);
  EXPECT_EQ(small.code, TSR_OK);
  EXPECT_STREQ(small.message, "abc");
}

TEST(Tensors, HonourTheByteOffsetAndTheType) {
  float data[4] = {1, 2, 3, 4};
  int64_t shape[1] = {2};
  const DLTensor t = tensor_of(data, shape, 8);
  EXPECT_THAT(elements<float>(t), ElementsAre(3, 4));
  EXPECT_EQ(element_bytes(t), 4);
  EXPECT_TRUE(elements_or_empty<float>(nullptr).empty());
  EXPECT_EQ(message_of([&] { elements<int64_t>(t, "ids"); }),
            "ids has DLPack type code 2 with 32 bits, but needs code 0 with 64");
}

// A table has a slot exactly if the class has the function.
TEST(Slots, FollowTheClass) {
  const tsr_sharder& plain = many_kinds::Plain::table<many_kinds::Plain>;
  EXPECT_TRUE(TSR_HAS(tsr_sharder, &plain, propose));
  EXPECT_FALSE(TSR_HAS(tsr_sharder, &plain, route));
  const tsr_optimizer& nothing = many_kinds::Nothing::table<many_kinds::Nothing>;
  EXPECT_FALSE(TSR_HAS(tsr_optimizer, &nothing, update_row));
  EXPECT_FALSE(TSR_HAS(tsr_optimizer, &nothing, state));
  EXPECT_FALSE(TSR_HAS(tsr_optimizer, &many_kinds::Sum::table<many_kinds::Sum>, formula));
  const tsr_kernel& ones = many_kinds::Ones::table<many_kinds::Ones>;
  EXPECT_TRUE(TSR_HAS(tsr_kernel, &ones, backward_rows));
  EXPECT_FALSE(TSR_HAS(tsr_kernel, &ones, backward));
  EXPECT_EQ(many_kinds::Ones::base_extension<many_kinds::Ones>(TSR_KERNEL_COST), nullptr);
  EXPECT_FALSE(TSR_HAS(tsr_kernel, &ones, read_rows));
  EXPECT_FALSE(TSR_HAS(tsr_kernel, &ones, export_rows));
  EXPECT_EQ(many_kinds::Loop::table<many_kinds::Loop>.flags, 0u);
  EXPECT_EQ(many_kinds::Wrap::table<many_kinds::Wrap>.flags, TSR_COLLECTIVE_WRAPS);
}

TEST(Slots, AKernelThroughItsTable) {
  many_kinds::Ones kernel;
  const tsr_kernel& api = many_kinds::Ones::table<many_kinds::Ones>;
  auto config = sdk::sized<tsr_kernel_config>();
  tsr_kernel_table tables[3] = {};
  config.num_tables = 3;
  config.table_stride = sizeof(tsr_kernel_table);
  config.tables = tables;
  tsr_error err = TSR_ERROR_INIT;
  EXPECT_EQ(api.supports(&kernel, &config, &err), TSR_UNIMPLEMENTED);
  EXPECT_STREQ(err.message, "only infers");
  tables[2].flags = 1u << 31;
  EXPECT_EQ(api.supports(&kernel, &config, &err), TSR_UNIMPLEMENTED);
  EXPECT_STREQ(err.message, "tsr_kernel_table has flags 2147483648, which this plugin does not know");
  tables[2].flags = 1u << 15;  // a hint
  void* instance = nullptr;
  ASSERT_EQ(api.open(&kernel, &config, &instance, &err), TSR_OK);
  float data[2] = {0, 0};
  int64_t shape[1] = {2};
  const DLTensor output = tensor_of(data, shape);
  tsr_lookup lookup{};
  lookup.flags = 1u << 17;
  EXPECT_EQ(api.forward(instance, &lookup, &output, nullptr, nullptr, &err), TSR_UNIMPLEMENTED);
  lookup.flags = TSR_LOOKUP_READ_ONLY | 1;
  EXPECT_EQ(api.forward(instance, &lookup, &output, nullptr, nullptr, &err), TSR_OK);
  EXPECT_THAT(data, ElementsAre(1, 1));
  tsr_row_gradient gradients[3];
  tsr_backward args{};
  args.lookup = &lookup;
  EXPECT_EQ(api.backward_rows(instance, nullptr, &args, gradients, nullptr, &err), TSR_OK);
  tsr_update update{};
  update.flags = 1u << 16;
  args.update = &update;
  EXPECT_EQ(api.backward_rows(instance, nullptr, &args, gradients, nullptr, &err), TSR_UNIMPLEMENTED);
  EXPECT_THAT(err.message, testing::StartsWith("tsr_update has flags 65536"));
  config.row_format = TSR_ROW_FORMAT_INT8;
  EXPECT_EQ(api.supports(&kernel, &config, &err), TSR_UNIMPLEMENTED);
  EXPECT_STREQ(err.message, "rows of the format \"fbgemm.int8\" are not known to this kernel");
  config.row_format = nullptr;
  auto values = sdk::sized<tsr_start_values>();
  values.flags = 1u << 30;
  config.start_values = &values;
  EXPECT_EQ(api.open(&kernel, &config, &instance, &err), TSR_UNIMPLEMENTED);
  EXPECT_THAT(err.message, testing::StartsWith("tsr_start_values has flags 1073741824"));
  api.close(instance);
}

TEST(Slots, AModuleThroughItsTable) {
  many_kinds::Echo module;
  const tsr_module& api = many_kinds::Echo::table<many_kinds::Echo>;
  tsr_error err = TSR_ERROR_INIT;
  auto parameter = sdk::sized<tsr_parameter>();
  ASSERT_EQ(api.parameter(&module, 0, &parameter, &err), TSR_OK);
  EXPECT_STREQ(parameter.name, "weight");
  EXPECT_EQ(parameter.ndim, 2);
  EXPECT_EQ(parameter.shape[1], 3);
  EXPECT_EQ(parameter.init, TSR_INIT_NORMAL);
  EXPECT_DOUBLE_EQ(parameter.init_values[1], std::sqrt(2.0 / 5));
  tsr_parameter older{};  // a host that does not know the number of dimensions
  older.struct_size = offsetof(tsr_parameter, ndim);
  ASSERT_EQ(api.parameter(&module, 0, &older, &err), TSR_OK);
  EXPECT_EQ(older.struct_size, offsetof(tsr_parameter, ndim));
  EXPECT_EQ(older.ndim, 0) << "nothing is written beyond its size";
  EXPECT_EQ(api.parameter(&module, 2, &parameter, &err), TSR_OUT_OF_RANGE);
  ASSERT_EQ(api.buffer(&module, 0, &parameter, &err), TSR_OK);
  EXPECT_STREQ(parameter.name, "seen");
  EXPECT_EQ(parameter.dtype.code, kDLInt);
  EXPECT_EQ(parameter.ndim, 0);
  EXPECT_EQ(api.buffer(&module, 1, &parameter, &err), TSR_OUT_OF_RANGE);

  struct Longer {  // a host whose struct is longer
    tsr_value value;
    uint64_t more = 1;
  } inputs[2] = {{{sizeof(Longer), 0, dtype_of<float>(), 0, 4}}, {{sizeof(Longer), 0, dtype_of<int64_t>(), 0, 5}}};
  auto output = sdk::sized<tsr_value>();
  EXPECT_EQ(api.output(&module, 0, 1, sizeof(Longer), &inputs[0].value, &output, &err), TSR_OK);
  EXPECT_EQ(output.width, 4);
  EXPECT_EQ(api.output(&module, 1, 1, sizeof(Longer), &inputs[0].value, &output, &err), TSR_OUT_OF_RANGE);
  EXPECT_EQ(api.output(&module, 0, 2, sizeof(Longer), &inputs[0].value, &output, &err), TSR_INVALID_ARGUMENT);
  EXPECT_STREQ(err.message, "takes one input, not 2 of 4 and 5");
  inputs[0].value.flags = TSR_VALUE_JAGGED;
  EXPECT_EQ(api.output(&module, 0, 1, sizeof(Longer), &inputs[0].value, &output, &err), TSR_OK);
  EXPECT_EQ(output.flags, uint32_t{TSR_VALUE_JAGGED}) << "a sequence with the rows of its input";
  EXPECT_EQ(output.rows_like, 0);
  inputs[0].value.rows_like = 1;
  EXPECT_EQ(api.output(&module, 0, 1, sizeof(Longer), &inputs[0].value, &output, &err), TSR_INVALID_ARGUMENT);
  EXPECT_STREQ(err.message, "input 0 has the rows of input 1, which is not before it");
  inputs[0].value.rows_like = 0;
  inputs[0].value.flags = 0x80000000u;
  EXPECT_EQ(api.output(&module, 0, 1, sizeof(Longer), &inputs[0].value, &output, &err), TSR_UNIMPLEMENTED);

  float in[2] = {3, 4}, out[2] = {0, 0};
  int64_t shape[1] = {2};
  const DLTensor input = tensor_of(in, shape), result = tensor_of(out, shape);
  auto call = sdk::sized<tsr_module_call>();
  call.num_inputs = call.num_outputs = 1;
  call.inputs = &input;
  call.outputs = &result;
  tsr_module_context* context = nullptr;
  call.flags = TSR_MODULE_TRAIN;
  ASSERT_EQ(api.forward(&module, &call, &context, &err), TSR_OK);
  EXPECT_THAT(out, ElementsAre(3, 4));
  EXPECT_EQ(module.live(), 1);
  EXPECT_EQ(api.backward(&module, &call, context, &err), TSR_INTERNAL);
  EXPECT_EQ(module.live(), 1) << "the context stays the caller's, even if backward fails";
  api.release(&module, context);
  EXPECT_EQ(module.live(), 0);
  int64_t most[1] = {0};
  EXPECT_EQ(api.max_rows(&module, &call, most, &err), TSR_UNIMPLEMENTED) << "it gives no rows of its own";
  call.flags = TSR_MUST_UNDERSTAND;
  EXPECT_EQ(api.forward(&module, &call, &context, &err), TSR_UNIMPLEMENTED) << "what the flags ask for nobody knows";
}

const void* plain_extension(const char* id) { return many_kinds::Plain().extension(id); }

// A plugin that is handed a table of another component checks its flags, as the host does.
TEST(Flags, OfTablesOfOthersAreChecked) {
  constexpr uint32_t kUnknown = 1u << 30;
  const auto component_with = [](const void* api) {
    auto out = sdk::sized<tsr_component>();
    out.id = "acme.newer";
    out.api = api;
    return out;
  };
  tsr_optimizer optimizer = many_kinds::Sum::table<many_kinds::Sum>;
  Options no_options("{}");
  many_kinds::Sum sum(no_options);
  const tsr_component with_optimizer = component_with(&optimizer);
  const tsr_instance updates{&with_optimizer, &sum};
  EXPECT_EQ(OptimizerRef(&updates).num_states(), 2u);
  optimizer.flags = kUnknown;
  EXPECT_THAT(message_of([&] { (void)OptimizerRef(&updates); }, TSR_UNIMPLEMENTED),
              testing::StartsWith("acme.newer has flags 1073741824"));
  optimizer.flags = 1;  // a hint
  optimizer.state = [](void*, uint32_t i, tsr_state* out, tsr_error*) -> tsr_code {
    out->flags = kUnknown;
    return i == 0 ? TSR_OK : TSR_OUT_OF_RANGE;
  };
  EXPECT_THAT(message_of([&] { (void)OptimizerRef(&updates); }, TSR_UNIMPLEMENTED),
              testing::HasSubstr("has flags 1073741824"));

  tsr_kernel kernel = many_kinds::Ones::table<many_kinds::Ones>;
  const tsr_component with_kernel = component_with(&kernel);
  const tsr_instance wrapped{&with_kernel, nullptr};
  EXPECT_TRUE(InnerKernel(&wrapped));
  kernel.flags = kUnknown;
  EXPECT_THAT(message_of([&] { (void)InnerKernel(&wrapped); }, TSR_UNIMPLEMENTED),
              testing::StartsWith("acme.newer has flags"));

  tsr_component with_extension = component_with(nullptr);
  with_extension.extension = [](void*, const char* id) { return plain_extension(id); };
  const tsr_instance extended{&with_extension, nullptr};
  EXPECT_EQ(extension_of<many_kinds::Answer>(extended, "many.answer/draft-1")->value, 42);
  EXPECT_EQ(extension_of<many_kinds::Answer>(extended, "many.answer/draft-2"), nullptr);
  EXPECT_THAT(
      message_of([&] { (void)extension_of<many_kinds::Answer>(extended, "many.flagged/draft-1"); }, TSR_UNIMPLEMENTED),
      testing::StartsWith("many.flagged/draft-1 has flags"));
}

TEST(Slots, ATransportThroughItsTable) {
  many_kinds::Loop loop;
  const tsr_collective& api = many_kinds::Loop::table<many_kinds::Loop>;
  tsr_error err = TSR_ERROR_INIT;
  tsr_group* group = nullptr;
  const tsr_rendezvous where{};
  ASSERT_EQ(api.connect(&loop, &where, &group, &err), TSR_OK);
  EXPECT_EQ(api.world_size(group), 1);
  EXPECT_EQ(api.host_of(group, 0), -1) << "a transport that does not say";
  int64_t send[2] = {5, 6}, recv[2] = {0, 0}, shape[1] = {2}, counts[1] = {2};
  const DLTensor from{send, {kDLCPU, 0}, 1, dtype_of<int64_t>(), shape, nullptr, 0};
  const DLTensor to{recv, {kDLCPU, 0}, 1, dtype_of<int64_t>(), shape, nullptr, 0};
  const tsr_collective_call call = named_call(nullptr);
  tsr_work* work = nullptr;
  ASSERT_EQ(api.all_to_all_v(group, &from, counts, &to, counts, &call, &work, &err), TSR_OK);
  EXPECT_EQ(api.wait(work, &err), TSR_OK);
  EXPECT_THAT(recv, ElementsAre(5, 6));
  EXPECT_EQ(api.all_reduce(group, &from, 77, &call, &work, &err), TSR_UNIMPLEMENTED);
  tsr_collective_call flagged = call;
  flagged.flags = 0xFFF0;  // unknown hints, and a flag that must be understood
  EXPECT_EQ(api.all_to_all_v(group, &from, counts, &to, counts, &flagged, &work, &err), TSR_OK);
  EXPECT_EQ(api.wait(work, &err), TSR_OK);
  flagged.flags = 0x10000;
  EXPECT_EQ(api.all_to_all_v(group, &from, counts, &to, counts, &flagged, &work, &err), TSR_UNIMPLEMENTED);
  tsr_collective_info info{};
  info.struct_size = offsetof(tsr_collective_info, num_reducible);  // an older host
  EXPECT_EQ(api.describe(&loop, &info, &err), TSR_OK);
  EXPECT_EQ(info.device_types, nullptr);
  EXPECT_EQ(info.reducible[0].bits, 32);
  EXPECT_EQ(info.num_reducible, 0u) << "nothing is written beyond its size";
  EXPECT_EQ(api.wire_bytes(&loop, dtype_of<double>(), 3, 0, 0), 24);
  EXPECT_EQ(api.status(group, &err), TSR_OK);
  tsr_group* child = group;
  EXPECT_EQ(api.split(group, -1, 0, &call, &child, &err), TSR_OK);
  EXPECT_EQ(child, nullptr);
  api.abort(group, "because");
  ASSERT_EQ(api.barrier(group, &call, &work, &err), TSR_OK);
  EXPECT_EQ(api.wait(work, &err), TSR_ABORTED);
  EXPECT_STREQ(err.message, "rank 0 failed in the barrier");
  EXPECT_EQ(err.rank, 0);
  EXPECT_EQ(api.status(group, &err), TSR_CANCELLED);
  EXPECT_EQ(err.rank, -1) << "nobody is to blame";
  api.close(group);
}

// Two features that read the same positions, from two tables; table 1 also has a feature without bags.
struct WrappedBatch {
  WrappedBatch() {
    for (const auto& [table, bags, first] : {std::tuple(1, 2, 0), {0, 3, 0}, {1, 0, 0}, {1, 1, 3}}) {
      tsr_lookup_feature& f = features.emplace_back();
      f.table = table;
      f.bags = bags;
      f.first_offset = first;
      f.output_stride = 8;
    }
    lookup.struct_size = sizeof(lookup);
    lookup.num_features = static_cast<uint32_t>(features.size());
    lookup.feature_stride = sizeof(tsr_lookup_feature);
    lookup.features = features.data();
    lookup.ids = &id_view;
    lookup.offsets = &offset_view;
    lookup.step = 9;
  }
  WrappedBatch(const WrappedBatch&) = delete;
  std::vector<int64_t> ids = {50, 60, 70, 80, 90}, offsets = {0, 2, 3, 3, 5}, five = {5};
  std::vector<int32_t> narrow = {50, 60, 70, 80, 90};
  std::vector<tsr_lookup_feature> features;
  DLTensor id_view{ids.data(), {kDLCPU, 0}, 1, dtype_of<int64_t>(), five.data(), nullptr, 0};
  DLTensor offset_view{offsets.data(), {kDLCPU, 0}, 1, dtype_of<int64_t>(), five.data(), nullptr, 0};
  tsr_lookup lookup{};
};

TEST(InnerLookup, HasRowsInThePlaceOfIds) {
  WrappedBatch batch;
  InnerAsk ask;
  std::vector<int64_t> ids = {1};
  ASSERT_TRUE(ask.take(batch.lookup, 1, 4));
  EXPECT_EQ(ask.table, 1u);
  ASSERT_EQ(ask.features.size(), 2u) << "one has no bags";
  for (const tsr_lookup_feature& f : ask.features) EXPECT_EQ(f.table, 4);
  ask.read_ids(batch.lookup, ids);
  EXPECT_THAT(ids, ElementsAre(50, 60, 70, 80, 90));
  batch.id_view = {batch.narrow.data(), {kDLCPU, 0}, 1, dtype_of<int32_t>(), batch.five.data(), nullptr, 0};
  ask.read_ids(batch.lookup, ids);
  EXPECT_THAT(ids, ElementsAre(50, 60, 70, 80, 90)) << "32 bits are as good";

  InnerLookup inner;
  ask.rows = {5, 6, 7, 8, 9};
  const tsr_lookup of_one = inner.of(batch.lookup, ask);
  EXPECT_EQ(of_one.num_features, 2u);
  EXPECT_EQ(of_one.step, 9);
  EXPECT_EQ(of_one.offsets, batch.lookup.offsets);
  EXPECT_EQ(feature_of(of_one, 1).first_offset, 3);
  const auto rows = elements<const int64_t>(*of_one.ids, "ids");
  EXPECT_THAT(std::vector<int64_t>(rows.begin(), rows.end()), ElementsAre(5, 6, 7, 8, 9));

  // The same positions for the other table reuse the memory.
  ASSERT_TRUE(ask.take(batch.lookup, 0));
  EXPECT_EQ(ask.features.size(), 1u) << "those of before are forgotten";
  ask.rows = {3, 2, 1};
  const tsr_lookup of_other = inner.of(batch.lookup, ask);
  EXPECT_EQ(of_other.ids->data, rows.data());
  EXPECT_THAT(std::vector<int64_t>(rows.begin(), rows.begin() + 3), ElementsAre(3, 2, 1));
  EXPECT_FALSE(ask.take(batch.lookup, 2));
}

TEST(InnerConfig, AsksAboutRowsByNumber) {
  const tsr_kernel_table table{sizeof(tsr_kernel_table), TSR_TABLE_ANY_ID, "item", 1000, 8, "{}", 2, 0};
  auto config = sdk::sized<tsr_kernel_config>();
  config.compute_kernel = "acme.cached";
  config.max_gradient = 3;
  const InnerConfig inner(config, table, 40);
  EXPECT_STREQ(inner.raw.compute_kernel, TSR_COMPUTE_FUSED);
  EXPECT_EQ(inner.raw.max_gradient, 3);
  ASSERT_EQ(inner.raw.num_tables, 1u);
  const tsr_kernel_table& asked = table_of(inner.raw, 0);
  EXPECT_EQ(asked.rows, 40);
  EXPECT_EQ(asked.dim, 8);
  EXPECT_EQ(asked.flags, 0u);
  EXPECT_EQ(asked.options, nullptr);
  EXPECT_STREQ(asked.name, "item");
}

TEST(CutBlocks, CoverEverything) {
  EXPECT_EQ(cut_blocks(10, 4).back().count, 1);
  EXPECT_EQ(cut_blocks(3, 4).back().count, 0);
  EXPECT_EQ(cut_blocks(0, 2)[1].start, 0);
  for (int64_t total : {0, 1, 5, 16, 17}) {
    int64_t next = 0;
    for (const Range& r : cut_blocks(total, 4)) {
      EXPECT_EQ(r.start, next);
      next += r.count;
    }
    EXPECT_EQ(next, total);
  }
}

}  // namespace
}  // namespace tessera::sdk
